#include "recovery/replay/replay_plan.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/limits.h"
#include "storage/apply.h"

namespace salius::recovery {
namespace {

// Walks the records once; see PlanReplay.
class Planner {
 public:
  Planner(absl::Span<const RecordView* const> records, const absl::flat_hash_set<Seq>& left_out)
      : records_(records), left_out_(left_out), cancelled_(left_out) {}

  absl::StatusOr<ReplayPlan> Run() {
    SALIUS_RETURN_IF_ERROR(FindMarks());
    for (const RecordView* record : records_) {
      NoteOrder(*record);
      const bool left_out = left_out_.contains(record->seq());
      if (!left_out && cancelled_.contains(record->seq())) continue;  // R56
      time_ns_ = left_out ? 0 : record->header.timestamp_ns;
      absl::Status status = left_out ? LeaveOut(*record) : Take(*record);
      if (!status.ok()) {
        return absl::DataLossError(absl::StrFormat("record %d (%s): %s", record->seq(),
                                                   OpName(record->header.op), status.message()));
      }
    }
    Finish();
    return std::move(plan_);
  }

 private:
  // Gathers cancels and "on disk" marks first: they act on records before them.
  absl::Status FindMarks() {
    for (const RecordView* record : records_) {
      const RecordHeader& header = record->header;
      if (header.file_id > kMaxCount) {
        return absl::DataLossError(
            absl::StrFormat("record %d has file id %d", header.seq, header.file_id));
      }
      plan_.max_file_id = std::max(plan_.max_file_id, header.file_id);
      plan_.last_timestamp_ns = std::max(plan_.last_timestamp_ns, header.timestamp_ns);
      if (header.op == Op::kCancel) {
        if (header.arg0 >= header.seq) {
          return absl::DataLossError(absl::StrFormat(
              "record %d cancels seq %d, which is not before it", header.seq, header.arg0));
        }
        if (cancelled_.insert(header.arg0).second) ++plan_.cancelled;
      } else if (header.op == Op::kOnDisk) {
        Seq& mark = on_disk_[header.file_id];
        mark = std::max(mark, header.arg0);
      }
    }
    return absl::OkStatus();
  }

  ObjectPlan& Object(FileId id) {
    ObjectPlan& object = plan_.objects[id];
    object.id = id;
    if (const auto mark = on_disk_.find(id); mark != on_disk_.end()) {
      object.on_disk_upto = mark->second;
    }
    return object;
  }

  absl::Status Take(const RecordView& record) {
    const RecordHeader& header = record.header;
    switch (header.op) {
      case Op::kWrite:
      case Op::kTruncate:
      case Op::kFallocate:
        return TakeData(record);
      case Op::kSetAttr:
      case Op::kSetXattr:
      case Op::kRemoveXattr:
        return TakeAttr(record);
      case Op::kCreate:
        return TakeCreate(record);
      case Op::kLink:
        return TakeLink(record);
      case Op::kUnlink:
        return TakeUnlink(record);
      case Op::kRename:
        return TakeRename(record);
      case Op::kOnDisk:
        if (header.file_id == kNoFileId) return absl::InvalidArgumentError("no file id");
        Object(header.file_id).on_disk = true;
        return absl::OkStatus();
      case Op::kAdopt: {
        if (header.file_id == kNoFileId) return absl::InvalidArgumentError("no file id");
        SALIUS_ASSIGN_OR_RETURN(AdoptBody body, AdoptBody::Decode(record.body()));
        Object(header.file_id)
            .adopts.insert(Object(header.file_id).adopts.begin(), std::move(body));
        return absl::OkStatus();
      }
      case Op::kCancel:
        return absl::OkStatus();
    }
    return absl::InvalidArgumentError("unknown operation");
  }

  // Leaves a record out. A rename that was tried before may have moved its object, and the object
  // in its way, from their places: they go back.
  absl::Status LeaveOut(const RecordView& record) {
    plan_.left_out.insert(record.header.file_id);
    if (record.header.op != Op::kRename) return absl::OkStatus();
    SALIUS_ASSIGN_OR_RETURN(RenameBody body, RenameBody::Decode(record.body()));
    const DirName from{body.from_dir, body.from_name};
    DirName to{body.to_dir, std::move(body.to_name)};
    if (!plan_.bindings.contains(from)) Bind(from, record.header.file_id);
    if (body.whiteout != kNoFileId) MakeWhiteout(body, /*bound=*/false);
    if (body.other != kNoFileId && !plan_.bindings.contains(to)) Bind(std::move(to), body.other);
    return absl::OkStatus();
  }

  // Plans the whiteout of a rename. Not `bound`: the rename is left out, but may have been tried.
  void MakeWhiteout(const RenameBody& body, bool bound) {
    const DirName from{body.from_dir, body.from_name};
    ObjectPlan& object = Object(body.whiteout);
    object.create = body.Whiteout();
    object.create_seq = seq_;
    plan_.bindings[from].whiteout = true;
    NoteName(object.id, from);
    if (!bound) return;
    // Not Bind: what stood there keeps its new name.
    plan_.bindings[from].target = object.id;
    plan_.bindings[from].seq = seq_;
    Touch(from.dir);
  }

  absl::Status TakeData(const RecordView& record) {
    if (record.header.file_id == kNoFileId) return absl::InvalidArgumentError("no file id");
    ObjectPlan& object = Object(record.header.file_id);
    if (record.seq() <= object.on_disk_upto) {  // R55
      ++object.skipped;
      return absl::OkStatus();
    }
    object.ops.push_back(&record);
    if (record.header.op == Op::kWrite) object.data_bytes += record.header.body_bytes;
    object.mtime_ns = record.header.timestamp_ns;  // R57
    TakeCapabilityAway(object);  // without a record, as for a store into a memory map
    return absl::OkStatus();
  }

  // Removes the capability, as the file system itself does.
  static void TakeCapabilityAway(ObjectPlan& object) {
    const auto capability = object.xattrs.find(kCapabilityXattr);
    if (capability != object.xattrs.end()) capability->second.value.reset();
  }

  absl::Status TakeAttr(const RecordView& record) {
    if (record.header.file_id == kNoFileId) return absl::InvalidArgumentError("no file id");
    ObjectPlan& object = Object(record.header.file_id);
    if (record.header.op == Op::kSetAttr) {
      SALIUS_ASSIGN_OR_RETURN(const AttrBody body, AttrBody::Decode(record.body()));
      if ((body.mask & kAttrMtime) != 0) {  // R57
        object.mtime_ns = 0;
        const auto directory = plan_.directory_times.find(object.id);
        if (directory != plan_.directory_times.end()) {
          directory->second = {.tv_sec = body.mtime_sec, .tv_nsec = body.mtime_nsec};
        }
      }
      if ((body.mask & (kAttrUid | kAttrGid)) != 0) TakeCapabilityAway(object);
    } else {
      SALIUS_ASSIGN_OR_RETURN(XattrBody body, XattrBody::Decode(record.body()));
      if (body.name == kFileIdXattr) return absl::InvalidArgumentError("a file id never changes");
      // Data past the log may have removed a capability; the disk has the result.
      if (body.name == kCapabilityXattr && record.seq() <= object.on_disk_upto) {
        object.xattrs.erase(body.name);
        return absl::OkStatus();
      }
      XattrAtT& xattr = object.xattrs[std::move(body.name)];  // R59
      xattr.seq = record.seq();
      xattr.value.reset();
      if (record.header.op == Op::kSetXattr) xattr.value = std::move(body.value);
    }
    object.ops.push_back(&record);
    return absl::OkStatus();
  }

  absl::Status TakeCreate(const RecordView& record) {
    if (record.header.file_id == kNoFileId) return absl::InvalidArgumentError("no file id");
    SALIUS_ASSIGN_OR_RETURN(CreateBody body, CreateBody::Decode(record.body()));
    ObjectPlan& object = Object(record.header.file_id);
    object.directory = S_ISDIR(body.mode);
    object.create_seq = record.seq();
    for (const auto& [name, value] : body.xattrs) {
      if (name != kFileIdXattr) object.xattrs[name] = {record.seq(), value};
    }
    // An object without writes keeps the time of its creation, not that of its rebuilding. This is
    // not for files with data past the log.
    if (object.directory) {
      NoteDirectoryTime(object.id);
    } else if (on_disk_.count(object.id) == 0) {
      object.mtime_ns = record.header.timestamp_ns;
    }
    if (body.dir != kNoFileId) {
      Bind({body.dir, body.name}, object.id);
    }
    object.create = std::move(body);
    return absl::OkStatus();
  }

  absl::Status TakeLink(const RecordView& record) {
    if (record.header.file_id == kNoFileId) return absl::InvalidArgumentError("no file id");
    SALIUS_ASSIGN_OR_RETURN(NameBody body, NameBody::Decode(record.body()));
    Bind({body.dir, std::move(body.name)}, record.header.file_id);
    return absl::OkStatus();
  }

  absl::Status TakeUnlink(const RecordView& record) {
    SALIUS_ASSIGN_OR_RETURN(NameBody body, NameBody::Decode(record.body()));
    if (record.header.file_id != kNoFileId) {
      ObjectPlan& object = Object(record.header.file_id);
      object.directory = object.directory || record.header.arg0 == 1;
      NoteName(object.id, {body.dir, body.name});
      if (record.header.arg1 == 1) gone_.insert(object.id);
    }
    Unbind({body.dir, std::move(body.name)}, record.header.file_id);
    return absl::OkStatus();
  }

  absl::Status TakeRename(const RecordView& record) {
    const FileId id = record.header.file_id;
    if (id == kNoFileId) return absl::InvalidArgumentError("no file id");
    SALIUS_ASSIGN_OR_RETURN(RenameBody body, RenameBody::Decode(record.body()));
    const DirName from{body.from_dir, body.from_name};
    DirName to{body.to_dir, std::move(body.to_name)};
    NoteName(id, from);
    if (body.other != kNoFileId) NoteName(body.other, to);
    if ((body.flags & RENAME_EXCHANGE) != 0) {
      if (body.other == kNoFileId) return absl::InvalidArgumentError("exchange with nothing");
      Bind(to, id);
      Bind(from, body.other);
      return absl::OkStatus();
    }
    // A rename(2) between two names of one file does nothing.
    if (body.other == id) {
      Bind(from, id);
      Bind(to, id);
      return absl::OkStatus();
    }
    if (from == to) {
      Bind(to, id);
      return absl::OkStatus();
    }
    if (body.other != kNoFileId) {
      removed_.insert(body.other);
      if (record.header.arg0 == 1) gone_.insert(body.other);
    }
    // The file keeps a name, so the loss of `from` does not count as a removal.
    plan_.bindings[from].target = kNoFileId;
    plan_.bindings[from].seq = record.seq();
    Touch(from.dir);
    if (body.whiteout != kNoFileId) MakeWhiteout(body, /*bound=*/true);
    Bind(to, id);
    return absl::OkStatus();
  }

  // Notes which record is the last of its object and of its directories, also among those that are
  // not performed. The session issued a cancelled one only when it knew the outcome of those
  // before. Take() reports bodies that do not decode.
  void NoteOrder(const RecordView& record) {
    const RecordHeader& header = record.header;
    seq_ = header.seq;
    switch (header.op) {
      case Op::kWrite:
      case Op::kTruncate:
      case Op::kFallocate:
      case Op::kSetAttr:
      case Op::kSetXattr:
      case Op::kRemoveXattr:
      case Op::kOnDisk:
        last_seq_[header.file_id] = header.seq;
        break;
      case Op::kCreate:
        if (const auto body = CreateBody::Decode(record.body()); body.ok()) {
          last_name_[body->dir] = header.seq;
        }
        break;
      case Op::kUnlink:
      case Op::kLink:
        last_seq_[header.file_id] = header.seq;
        if (const auto body = NameBody::Decode(record.body()); body.ok()) {
          last_name_[body->dir] = header.seq;
        }
        break;
      case Op::kRename:
        if (const auto body = RenameBody::Decode(record.body()); body.ok()) {
          last_name_[body->from_dir] = last_name_[body->to_dir] = header.seq;
          if (body->from_dir != body->to_dir) {
            other_dirs_[header.seq] = {body->from_dir, body->to_dir};
          }
          if ((body->flags & RENAME_EXCHANGE) == 0 && body->other != kNoFileId) {
            last_seq_[body->other] = header.seq;
          }
        }
        break;
      case Op::kAdopt:
      case Op::kCancel:
        break;
    }
  }

  void Touch(FileId dir) {
    if (dir != kRootFileId) Object(dir).directory = true;
    plan_.max_file_id = std::max(plan_.max_file_id, dir);
    NoteDirectoryTime(dir);
  }

  // Notes that the present record changes the directory, unless it is left out.
  void NoteDirectoryTime(FileId dir) {
    constexpr uint64_t kSecond = 1'000'000'000;
    if (time_ns_ == 0) return;
    plan_.directory_times[dir] = {.tv_sec = static_cast<time_t>(time_ns_ / kSecond),
                                  .tv_nsec = static_cast<long>(time_ns_ % kSecond)};
  }

  void NoteName(FileId id, DirName name) {
    plan_.max_file_id = std::max(plan_.max_file_id, id);
    Object(id).names.push_back(std::move(name));  // reversed by Finish()
  }

  void Bind(DirName name, FileId id) {
    Touch(name.dir);
    NoteName(id, name);
    Binding& binding = plan_.bindings[std::move(name)];
    if (binding.target != kNoFileId && binding.target != id) removed_.insert(binding.target);
    binding.target = id;
    binding.seq = seq_;
  }

  void Unbind(DirName name, FileId id) {
    Touch(name.dir);
    Binding& binding = plan_.bindings[std::move(name)];
    const FileId before = id != kNoFileId ? id : binding.target;
    if (before != kNoFileId) removed_.insert(before);
    binding.target = kNoFileId;
    binding.seq = seq_;
    binding.remove_unknown = binding.remove_unknown || before == kNoFileId;
  }

  void Finish() {
    for (const auto& [dir, seq] : last_name_) {
      const auto both = other_dirs_.find(seq);
      if (both == other_dirs_.end() ||
          (last_name_[both->second.first] == seq && last_name_[both->second.second] == seq)) {
        plan_.last_names.insert(seq);
      }
    }
    absl::flat_hash_set<FileId> bound;
    for (const auto& [name, binding] : plan_.bindings) {
      if (binding.target != kNoFileId) bound.insert(binding.target);
    }
    for (const auto& [name, binding] : plan_.bindings) {
      if (name.dir != kRootFileId) Object(name.dir).needed = true;
    }
    for (auto& [id, object] : plan_.objects) {
      if (const auto last = last_seq_.find(id); last != last_seq_.end()) {
        object.last_seq = last->second;
      }
      object.needed = object.needed || !object.ops.empty() || bound.contains(id);
      std::reverse(object.names.begin(), object.names.end());
      if (id == kRootFileId || bound.contains(id)) {
        object.fate = Fate::kBound;
      } else if (object.create.has_value() || gone_.contains(id)) {
        object.fate = Fate::kUnbound;  // R65, R66, R72
      } else if (removed_.contains(id)) {
        object.fate = object.directory ? Fate::kUnbound : Fate::kMaybeUnbound;  // R66, R67
      } else {
        object.fate = Fate::kBound;  // R71: without a touched name
      }
      if (object.fate == Fate::kUnbound) object.needed = false;
      if (object.needed) plan_.data_bytes += object.data_bytes;
    }
  }

  absl::Span<const RecordView* const> records_;
  const absl::flat_hash_set<Seq>& left_out_;
  ReplayPlan plan_;
  absl::flat_hash_set<Seq> cancelled_;
  absl::flat_hash_map<FileId, Seq> on_disk_;
  absl::flat_hash_set<FileId> removed_;         // ids that lost a name
  absl::flat_hash_set<FileId> gone_;            // ids that lost the only name left
  Seq seq_ = 0;                                 // the present record's
  uint64_t time_ns_ = 0;                        // its timestamp; 0 when it is left out
  absl::flat_hash_map<FileId, Seq> last_seq_;   // by object
  absl::flat_hash_map<FileId, Seq> last_name_;  // by directory
  absl::flat_hash_map<Seq, std::pair<FileId, FileId>> other_dirs_;  // of renames between two
};

const char* FateText(Fate fate) {
  switch (fate) {
    case Fate::kBound:
      return "kept";
    case Fate::kMaybeUnbound:
      return "kept if it has other names";
    case Fate::kUnbound:
      return "gone";
  }
  return "";
}

}  // namespace

absl::StatusOr<ReplayPlan> PlanReplay(absl::Span<const RecordView* const> records,
                                      const absl::flat_hash_set<Seq>& left_out) {
  return Planner(records, left_out).Run();
}

bool ReplayPlan::MayLeaveOutCreate(const ObjectPlan& object) const {
  const auto inside = bindings.lower_bound(DirName{object.id, ""});
  if (object.last_seq != 0 || (inside != bindings.end() && inside->first.dir == object.id)) {
    return false;
  }
  if (object.create->dir == kNoFileId) return object.names.empty();
  return object.names.size() <= 1 && last_names.contains(object.create_seq);
}

namespace {

// Returns the name's path, or the name with its directory's id.
std::string NameText(const DirName& name, const ObjectPaths& paths) {
  if (name.dir == kRootFileId && !paths.empty()) return absl::StrFormat("\"%s\"", name.name);
  const auto dir = paths.find(name.dir);
  if (dir != paths.end()) return absl::StrFormat("\"%s/%s\"", dir->second, name.name);
  return absl::StrFormat("\"%s\" in directory %d", name.name, name.dir);
}

std::string ObjectText(const ObjectPlan& object, const ObjectPaths& paths) {
  const auto path = paths.find(object.id);
  if (path != paths.end()) return absl::StrFormat("file \"%s\"", path->second);
  std::string where;
  if (!object.names.empty()) {
    where = " " + NameText(object.names[0], paths);
  } else if (!object.adopts.empty()) {
    where = absl::StrFormat(" \"%s\"", object.adopts[0].path);
  }
  return absl::StrFormat("file %d%s", object.id, where);
}

}  // namespace

std::vector<std::string> DescribePlan(const ReplayPlan& plan, const ObjectPaths& paths) {
  std::vector<std::string> lines;
  for (const auto& [id, object] : plan.objects) {
    if (object.ops.empty() && !object.create.has_value()) continue;
    lines.push_back(absl::StrFormat("%s: %s%s, %d operations, %d bytes, %d already on disk",
                                    ObjectText(object, paths), object.create.has_value() ? "created, " : "",
                                    FateText(object.fate), object.ops.size(), object.data_bytes,
                                    object.skipped));
  }
  for (const auto& [name, binding] : plan.bindings) {
    if (binding.target == kNoFileId) {
      lines.push_back(absl::StrFormat("name %s: removed", NameText(name, paths)));
      continue;
    }
    // Where the file itself has another path, add it to identify the file.
    const auto target = paths.find(binding.target);
    const std::string own = target == paths.end() ? absl::StrFormat("file %d", binding.target)
                            : NameText(name, paths) == absl::StrFormat("\"%s\"", target->second)
                                ? "stays or is made"
                                : absl::StrFormat("file \"%s\"", target->second);
    lines.push_back(absl::StrFormat("name %s: %s", NameText(name, paths), own));
  }
  return lines;
}

}  // namespace salius::recovery

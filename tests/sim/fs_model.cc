#include "tests/sim/fs_model.h"

#include <stdio.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"

namespace salius::sim {
namespace {

using recovery::DirName;

constexpr uint64_t kMaxFile = 1 << 20;  // a record that writes beyond is not from this simulator

void WriteTo(std::string& file, uint64_t offset, std::string_view data) {
  if (offset + data.size() > kMaxFile) return;
  if (file.size() < offset + data.size()) file.resize(offset + data.size(), '\0');
  file.replace(offset, data.size(), data);
}

}  // namespace

bool ChangesNames(Op op) {
  return op == Op::kCreate || op == Op::kLink || op == Op::kUnlink || op == Op::kRename;
}

void Tree::Apply(const RecordHeader& header, std::string_view body) {
  const auto file = files.find(header.file_id);
  switch (header.op) {
    case Op::kWrite:
      if (file != files.end()) WriteTo(file->second, header.arg0, body);
      return;
    case Op::kTruncate:
      if (file != files.end() && header.arg0 <= kMaxFile) file->second.resize(header.arg0, '\0');
      return;
    case Op::kCreate: {
      const auto create = CreateBody::Decode(body);
      SALIUS_CHECK(create.ok());
      files[header.file_id];
      names[{create->dir, create->name}] = header.file_id;
      return;
    }
    case Op::kLink:
    case Op::kUnlink: {
      const auto name = NameBody::Decode(body);
      SALIUS_CHECK(name.ok());
      if (header.op == Op::kLink) {
        names[{name->dir, name->name}] = header.file_id;
      } else {
        names.erase({name->dir, name->name});
      }
      return;
    }
    case Op::kRename: {
      const auto rename = RenameBody::Decode(body);
      SALIUS_CHECK(rename.ok());
      const DirName from{rename->from_dir, rename->from_name}, to{rename->to_dir, rename->to_name};
      if ((rename->flags & RENAME_EXCHANGE) != 0) {
        names[from] = rename->other;
      } else {
        names.erase(from);
      }
      names[to] = header.file_id;
      return;
    }
    default:
      return;
  }
}

void Tree::Collect() {
  std::set<FileId> bound;
  for (const auto& [name, id] : names) bound.insert(id);
  std::erase_if(files, [&](const auto& file) { return bound.count(file.first) == 0; });
}

std::string Difference(const Tree& got, const Tree& expected) {
  if (got == expected) return "";
  for (const auto& [name, id] : expected.names) {
    const auto found = got.names.find(name);
    if (found == got.names.end()) return absl::StrCat("name ", name.name, " is missing");
    if (found->second != id) {
      return absl::StrCat("name ", name.name, " is file ", found->second, ", not ", id);
    }
  }
  for (const auto& [name, id] : got.names) {
    if (expected.names.count(name) == 0) return absl::StrCat("name ", name.name, " is there again");
  }
  for (const auto& [id, content] : expected.files) {
    const auto found = got.files.find(id);
    if (found == got.files.end()) return absl::StrCat("file ", id, " is missing");
    if (found->second.size() != content.size()) {
      return absl::StrCat("file ", id, " has ", found->second.size(), " bytes, not ",
                          content.size());
    }
    const auto [a, b] = std::mismatch(content.begin(), content.end(), found->second.begin());
    if (a != content.end()) {
      return absl::StrFormat("file %d at %d: %02x, not %02x", id, a - content.begin(),
                             static_cast<uint8_t>(*b), static_cast<uint8_t>(*a));
    }
  }
  return "a file without a name is left";
}

void FsModel::Change::Do(Tree& tree) const {
  if (make) {
    tree.files[id];
  } else if (set_name && id != kNoFileId) {
    tree.names[name] = id;
  } else if (set_name) {
    tree.names.erase(name);
  } else {
    tree.Apply(header, body);
  }
}

// Does a part of a write; other changes of data are whole or absent.
bool FsModel::Change::DoPart(Tree& tree, Random& random) const {
  if (header.op != Op::kWrite || body.size() < 2) return false;
  const size_t begin = random.Below(body.size());
  RecordHeader piece = header;
  piece.arg0 += begin;
  tree.Apply(piece, std::string_view(body).substr(begin, 1 + random.Below(body.size() - begin)));
  return true;
}

absl::Status FsModel::Make(Change change) {
  if (trouble_.after > 1) {
    --trouble_.after;
  } else if (trouble_.after == 1) {
    const Kind kind = trouble_.kind;
    if (kind == kNoSpace) {
      const bool frees = change.set_name ? change.id == kNoFileId
                                         : !change.make && change.header.op == Op::kUnlink;
      if (!frees) return absl::ResourceExhaustedError("the simulated disk is full");
    } else {
      trouble_ = {};
      dead_ = kind == kDeath;
      return absl::InternalError("the simulated file system fails");
    }
  }
  change.Do(now_);
  log_.push_back(std::move(change));
  return absl::OkStatus();
}

absl::Status FsModel::Apply(const RecordHeader& header, std::string_view body) {
  Change change;
  change.header = header;
  change.body = std::string(body);
  return Make(std::move(change));
}

void FsModel::ApplyPart(const RecordHeader& header, std::string_view body, Random& random) {
  if (header.op != Op::kWrite) return;
  const size_t done = random.Below(body.size() + 1);
  if (done > 0) Apply(header, body.substr(0, done)).IgnoreError();
}

absl::Status FsModel::WriteBulk(FileId id, uint64_t offset, std::string_view data) {
  RecordHeader header;
  header.op = Op::kWrite;
  header.file_id = id;
  header.arg0 = offset;
  return Apply(header, data);
}

void FsModel::SyncUpTo(uint64_t changes) {
  SALIUS_CHECK(changes <= this->changes());
  if (changes <= done_) return;
  const auto end = log_.begin() + static_cast<long>(changes - done_);
  for (auto at = log_.begin(); at != end; ++at) {
    if (!at->lost) at->Do(disk_);
  }
  log_.erase(log_.begin(), end);
  done_ = changes;
}

void FsModel::FailSync(uint64_t changes, Random& random) {
  if (changes <= done_) return;
  const double chance = random.Chance(0.5) ? 1 : 0.5;
  for (size_t i = 0; i < changes - done_; ++i) {
    if (!log_[i].names() && random.Chance(chance)) log_[i].lost = true;
  }
}

void FsModel::DropLost() {
  now_ = disk_;
  for (const Change& change : log_) {
    if (!change.lost) change.Do(now_);
  }
}

void FsModel::Crash(Random& random, Death death, bool session) {
  trouble_ = {};
  fail_sync_ = nullptr;
  dead_ = false;
  if (death == Death::kProcess) return;
  if (death == Death::kPower) {
    const uint64_t names = random.Below(log_.size() + 1);
    const double data = random.Chance(options_.no_data)    ? 0
                        : random.Chance(options_.all_data) ? 1
                                                           : random.Below(100) / 100.0;
    for (size_t i = 0; i < log_.size(); ++i) {
      const Change& change = log_[i];
      if (change.names()) {
        if (i < names) change.Do(disk_);
      } else if (!change.lost && random.Chance(data)) {
        if (random.Chance(options_.whole_data) || !change.DoPart(disk_, random)) change.Do(disk_);
      }
    }
  } else {
    SyncUpTo(changes());
  }
  now_ = disk_;
  done_ = changes();
  log_.clear();
  if (session) {
    now_.Collect();
    disk_ = now_;
  }
}

absl::Status FsModel::Check(const recovery::ReplayContext&, const recovery::ReplayPlan& plan) {
  for (const auto& [id, object] : plan.objects) {
    if (!object.needed || now_.files.count(id) > 0 ||
        object.fate == recovery::Fate::kMaybeUnbound) {
      continue;
    }
    if (!object.create.has_value() || object.on_disk) {
      return absl::DataLossError(absl::StrCat("file ", id, " cannot be recovered"));
    }
  }
  return absl::OkStatus();
}

recovery::ReplayResult FsModel::Replay(const recovery::ReplayContext& context,
                                       const recovery::ReplayPlan& plan) {
  absl::Status status = Check(context, plan);
  for (auto at = plan.objects.begin(); status.ok() && at != plan.objects.end(); ++at) {
    const auto& [id, object] = *at;
    if (!object.needed) continue;
    if (now_.files.count(id) == 0 && object.create.has_value()) {
      Change made;
      made.make = true;
      made.id = id;
      status = Make(std::move(made));
    }
    if (status.ok() && now_.files.count(id) > 0) {
      for (const recovery::RecordView* record : object.ops) {
        Change change;
        change.header = record->header;
        change.body = std::string(record->body());
        status = Make(std::move(change));
        if (!status.ok()) break;
      }
    }
  }
  for (auto at = plan.bindings.begin(); status.ok() && at != plan.bindings.end(); ++at) {
    const FileId target = at->second.target;
    if (target != kNoFileId && now_.files.count(target) == 0) continue;
    Change change;
    change.set_name = true;
    change.name = at->first;
    change.id = target;
    status = Make(std::move(change));
  }
  return status;
}

absl::Status FsModel::Sync(const recovery::ReplayContext&) {
  if (fail_sync_ != nullptr) {
    FailSync(changes(), *std::exchange(fail_sync_, nullptr));
    return absl::InternalError("the simulated file system fails to sync");
  }
  SyncUpTo(changes());
  return absl::OkStatus();
}

void FsModel::CleanUp(const recovery::ReplayContext&, const VolumeConfig&) {
  now_.Collect();
  disk_.Collect();
}

}  // namespace salius::sim

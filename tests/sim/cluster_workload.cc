// The operations of the clients of a simulated cluster: each has one in progress at a time. After a
// write a client waits until it is durable (a sync write) or continues at once (a plain one).
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/bytes.h"
#include "common/crc32c.h"
#include "tests/sim/cluster_sim.h"

namespace salius::sim {
namespace {

constexpr int kFewNames = 6, kManyNames = 60;
constexpr uint64_t kFileSpan = 64;
constexpr size_t kLargest = 90 << 10;
constexpr uint64_t kExchange = 2;  // RENAME_EXCHANGE

// Returns the content of large records after their first bytes.
const std::string& Pattern() {
  static const std::string* const pattern = [] {
    auto* const bytes = new std::string(kLargest, '\0');
    for (size_t i = 0; i < bytes->size(); ++i) (*bytes)[i] = static_cast<char>(i);
    return bytes;
  }();
  return *pattern;
}

}  // namespace

void ClusterSim::DrawClients() {
  clients_.assign(1 + random_.Below(4), Client());
  tight_ = random_.Chance(options_.tight);
  names_ = random_.Chance(options_.many_files) ? kManyNames : kFewNames;
  plain_ = random_.Chance(options_.all_plain) ? 1 : random_.Chance(options_.all_sync) ? 0 : 0.5;
}

std::string ClusterSim::AnyName() {
  return absl::StrCat("n", random_.Below(static_cast<uint64_t>(names_)));
}

bool ClusterSim::Waits(const Client& client) const {
  return client.durable > primary_->core().durable() ||
         client.applied > primary_->core().applied() ||
         std::any_of(held_.begin(), held_.end(),
                     [&](const Held& held) { return held.client == &client; });
}

bool ClusterSim::Busy(FileId file, std::initializer_list<std::string_view> names) const {
  return std::any_of(held_.begin(), held_.end(), [&](const Held& held) {
    return std::count(held.files.begin(), held.files.end(), file) > 0 ||
           std::any_of(names.begin(), names.end(), [&](std::string_view name) {
             return std::count(held.names.begin(), held.names.end(), name) > 0;
           });
  });
}

Seq ClusterSim::Put(RecordHeader header, std::string body, SendWhen when) {
  CheckDeadline(*primary_);
  wanted_.Apply(header, body);
  const Seq seq = primary_->Issue(header, body, when);
  CountUnnoticedLosses(*primary_);
  Say("record %d: %s file %d at %d, %d bytes", seq, OpName(header.op), header.file_id, header.arg0,
      body.size());
  Mix(Crc32c(AsBytes(body)));
  if (header.op == Op::kWrite || header.op == Op::kTruncate) last_data_[header.file_id] = seq;
  done_.push_back({header, std::move(body), 0});
  ++outcome_.records;
  return seq;
}

// Issues an operation on names. It may be cancelled if there may be no room for it. Then everything
// it touches is held until its caller has the result, as by the mount's locks.
void ClusterSim::PutName(Client& client, RecordHeader header, std::string body,
                         std::vector<FileId> files, std::vector<std::string> names) {
  const Seq seq = Put(header, std::move(body));
  wanted_.Collect();
  if (plain_ < 1) client.applied = seq;
  if (tight_) held_.push_back({seq, 0, false, &client, std::move(files), std::move(names)});
}

void ClusterSim::Create(Client& client, const std::string& name, FileId id) {
  CreateBody create;
  create.dir = kRootFileId;
  create.name = name;
  create.mode = 0100644;
  RecordHeader header;
  header.op = Op::kCreate;
  header.file_id = id;
  PutName(client, header, create.Encode(), {id}, {name});
}

void ClusterSim::Rename(Client& client, const std::string& from, FileId id, const std::string& to) {
  RenameBody rename;
  rename.from_dir = rename.to_dir = kRootFileId;
  rename.from_name = from;
  rename.to_name = to;
  const auto there = wanted_.names.find({kRootFileId, to});
  if (there != wanted_.names.end()) {
    rename.other = there->second;
    if (rename.other == id) return;
    if (random_.Chance(0.3)) rename.flags = kExchange;
  }
  if (Busy(id, {from, to}) || Busy(rename.other, {})) return;
  RecordHeader header;
  header.op = Op::kRename;
  header.file_id = id;
  PutName(client, header, rename.Encode(), {id, rename.other}, {from, to});
}

void ClusterSim::Write(Client& client, FileId id, bool sync) {
  if (Busy(id, {})) return;
  RecordHeader header;
  header.op = Op::kWrite;
  header.file_id = id;
  header.arg0 = random_.Below(kFileSpan);
  const bool large = random_.Chance(bulky_ || huge_ ? 0.8 : 0.02);
  const size_t size =
      large ? 3000 + random_.Below(huge_ ? kLargest - 3000 : 20000) : 1 + random_.Below(16);
  std::string body(Pattern(), 0, size);
  for (size_t i = 0; i < std::min<size_t>(size, 16); ++i) {
    body[i] = static_cast<char>(random_.Below(256));
  }
  const Seq seq = Put(header, std::move(body), sync ? SendWhen::kSoon : SendWhen::kLater);
  if (sync) client.durable = seq;
}

void ClusterSim::WriteBulk(Client& client, FileId id) {
  // The engine lets a file's logged data reach the file first; its fsync waits for the disk.
  const Replicator& core = primary_->core();
  if (fs_.tree().files.count(id) == 0 || Busy(id, {})) return;  // its creation has not returned yet
  if (last_data_.count(id) > 0 && last_data_[id] > core.applied()) return;
  if (now_ < full_until_) return;  // the write fails, with no other effect
  if (bulk_syncing_) return;
  Done done;
  done.header.op = Op::kWrite;
  done.header.file_id = id;
  done.header.arg0 = random_.Below(kFileSpan);
  done.body = std::string(1 + random_.Below(32), static_cast<char>(random_.Below(256)));
  done.confirmed = kNever;
  if (Fault("EIO of a bulk write",
            options_.bulk_write_error)) {  // its caller gets the error, with no other effect
    fs_.ApplyPart(done.header, done.body, random_);
    done_.push_back(std::move(done));
    return;
  }
  wanted_.Apply(done.header, done.body);
  fs_.WriteBulk(id, done.header.arg0, done.body).IgnoreError();
  const size_t index = done_.size();
  done_.push_back(std::move(done));
  if (!Fault("slow fsync of bulk data", options_.bulk_slow))
    return BulkSynced(index, fs_.changes());
  // The file is locked until then.
  bulk_syncing_ = fs_.changes();
  held_.push_back({kNever, 0, false, &client, {id}, {}});
  AfterDiskTime([this, index, changes = fs_.changes()] { BulkSynced(index, changes); });
}

void ClusterSim::BulkSynced(size_t index, uint64_t changes) {
  bulk_syncing_.reset();
  if (!Fault("EIO of an fsync of bulk data", options_.bulk_sync_error)) {
    fs_.SyncUpTo(changes);
    return ConfirmBulk(index);
  }
  LoseBulk(changes);
  primary_->OnBulkSyncFailed();
}

void ClusterSim::LoseBulk(uint64_t changes) {
  fs_.FailSync(changes, random_);
  disk_.Complain();
}

void ClusterSim::ConfirmBulk(size_t index) {
  const Replicator& core = primary_->core();
  if (!core.failure().ok()) return;  // its caller gets an error
  if (!primary_->CanIssue(0)) {
    return AfterDiskTime([this, index] { ConfirmBulk(index); });
  }
  const FileId id = done_[index].header.file_id;
  std::erase_if(held_, [](const Held& held) { return held.seq == kNever; });
  RecordHeader mark;
  mark.op = Op::kOnDisk;
  mark.file_id = id;
  mark.arg0 = last_data_.count(id) > 0 ? last_data_[id] : 0;
  done_[index].confirmed = core.issued() + 1;
  Put(mark, "");
}

// Saves a file: creates it under another name, writes, syncs, renames it over the old one.
void ClusterSim::SaveStep(Client& client) {
  const auto made = wanted_.names.find({kRootFileId, client.temporary});
  if (client.save_step > 1 && (made == wanted_.names.end() || made->second != client.file)) {
    client.save_step = 0;  // another client removed it, or there was no room for it
    return;
  }
  switch (client.save_step++) {
    case 1:
      client.temporary = AnyName();
      client.file = primary_->NewFileId();
      if (wanted_.names.count({kRootFileId, client.temporary}) > 0 ||
          Busy(kNoFileId, {client.temporary})) {
        client.save_step = 0;
        return;
      }
      return Create(client, client.temporary, client.file);
    case 2:
      return Write(client, client.file, false);
    case 3:
      return Write(client, client.file, plain_ < 1);
    default:
      client.save_step = 0;
      return Rename(client, client.temporary, client.file, AnyName());
  }
}

void ClusterSim::IssueOne() {
  if (!primary_->CanIssue(huge_ ? kLargest : 24 << 10) || !primary_->core().failure().ok()) return;
  if (CancelOne()) return;
  Client& client = clients_[random_.Below(clients_.size())];
  if (Waits(client)) return;
  if (client.save_step > 0) return SaveStep(client);
  const uint64_t dice = wanted_.names.empty() ? 0 : random_.Below(100);
  const auto any = [&]() -> const auto& {
    return *std::next(wanted_.names.begin(),
                      static_cast<long>(random_.Below(wanted_.names.size())));
  };
  if (dice < 12) {
    const std::string name = AnyName();
    if (wanted_.names.count({kRootFileId, name}) > 0 || Busy(kNoFileId, {name})) return;
    return Create(client, name, primary_->NewFileId());
  }
  if (dice < 15) {
    client.save_step = 1;
    return SaveStep(client);
  }
  const auto [name, id] = any();
  RecordHeader header;
  header.file_id = id;
  if (dice < 25) {
    if (Busy(id, {name.name})) return;
    header.op = Op::kUnlink;
    PutName(client, header, NameBody{name.dir, name.name}.Encode(), {id}, {name.name});
  } else if (dice < 37) {
    Rename(client, name.name, id, AnyName());
  } else if (dice < 41) {
    const std::string other = AnyName();
    if (wanted_.names.count({kRootFileId, other}) > 0 || Busy(id, {other})) return;
    header.op = Op::kLink;
    PutName(client, header, NameBody{kRootFileId, other}.Encode(), {id}, {other});
  } else if (dice < 48) {
    if (Busy(id, {})) return;
    header.op = Op::kTruncate;
    header.arg0 = random_.Below(kFileSpan);
    client.durable = plain_ < 1 ? Put(header, "") : (Put(header, ""), 0);
  } else if (dice < 52) {
    WriteBulk(client, id);
  } else {
    Write(client, id, !random_.Chance(plain_));
  }
}

// Releases the locks of operations whose callers have their result. Issues at most one record that
// cancels an operation without room; returns whether it did.
bool ClusterSim::CancelOne() {
  if (held_.empty()) return false;
  TakeRefused();
  const Replicator& core = primary_->core();
  std::erase_if(held_, [&](const Held& held) {
    return held.refused ? held.cancel != 0 && held.cancel <= core.durable()
                        : held.seq <= core.applied();
  });
  const auto due = std::find_if(held_.begin(), held_.end(),
                                [](const Held& held) { return held.refused && held.cancel == 0; });
  if (due == held_.end()) return false;
  RecordHeader header;
  header.op = Op::kCancel;
  header.file_id = due->files.front();
  header.arg0 = due->seq;
  due->cancel = Put(header, "");
  wanted_ = Expected(core.issued(), {}, nullptr);
  ++outcome_.cancels;
  return true;
}

void ClusterSim::TakeRefused() {
  const std::vector<Seq> refused = primary_->TakeRefused();
  for (Held& held : held_) {
    held.refused = held.refused || std::count(refused.begin(), refused.end(), held.seq) > 0;
  }
}

Tree ClusterSim::Expected(Seq decided, std::vector<Seq> without,
                          std::map<FileId, Unsure>* unsure) const {
  Seq seq = 0;
  if (tight_) {
    for (const Done& done : done_) {
      if (done.confirmed != 0 || ++seq > decided || done.header.op != Op::kCancel) continue;
      without.push_back(done.header.arg0);
    }
  }
  Tree tree = base_;
  seq = 0;
  const auto apply = [&](const Done& done) {
    tree.Apply(done.header, done.body);
    if (unsure == nullptr) return;
    const auto at = unsure->find(done.header.file_id);
    if (at == unsure->end()) return;
    Unsure& file = at->second;
    const uint64_t from = done.header.arg0;
    if (done.header.op == Op::kTruncate) {
      file.bytes.erase(file.bytes.lower_bound(from), file.bytes.end());
      file.most = from;
    } else if (done.header.op == Op::kWrite) {
      const uint64_t to = from + done.body.size();
      file.bytes.erase(file.bytes.lower_bound(from), file.bytes.lower_bound(to));
      file.most = std::max(file.most, to);
    }
  };
  for (const Done& done : done_) {
    if (done.confirmed == 0) {
      if (++seq > decided || std::count(without.begin(), without.end(), seq) > 0) continue;
      apply(done);
    } else if (done.confirmed <= decided) {
      apply(done);
    } else if (unsure != nullptr) {
      const auto file = tree.files.find(done.header.file_id);
      if (file == tree.files.end()) continue;
      Unsure& more = (*unsure)[file->first];
      const uint64_t to = done.header.arg0 + done.body.size();
      for (uint64_t at = done.header.arg0; at < to; ++at) more.bytes.insert(at);
      more.most = std::max({more.most, to, static_cast<uint64_t>(file->second.size())});
    }
  }
  tree.Collect();
  return tree;
}

}  // namespace salius::sim

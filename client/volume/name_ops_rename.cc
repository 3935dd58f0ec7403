// Rename: makes the checks that the kernel would make, then stamps the record.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <optional>
#include <utility>

#include "client/volume/name_ops.h"
#include "client/volume/node_fds.h"
#include "common/check.h"
#include "common/file.h"
#include "storage/apply.h"

namespace salius {

absl::Status NameOps::Rename(Node& from_dir, std::string_view from, Node& to_dir,
                             std::string_view to, uint32_t flags, const Caller& caller) {
  const bool whiteout = (flags & RENAME_WHITEOUT) != 0;
  const uint32_t how = flags & ~RENAME_WHITEOUT;
  if (how != 0 && how != RENAME_NOREPLACE && (how != RENAME_EXCHANGE || whiteout)) {
    return ErrnoStatus(EINVAL, "rename flags");
  }
  SALIUS_RETURN_IF_ERROR(check_.OldNameSyntax(from_dir, from, EBUSY));
  if (check_.IsHidden(to_dir, to)) return ErrnoStatus(EPERM, ".salius is Salius' own");
  SALIUS_RETURN_IF_ERROR(check_.OldNameSyntax(to_dir, to, EBUSY));
  const std::string from_name(from);
  const std::string to_name(to);
  // A directory that is displaced must stay empty: as in RemoveDir.
  PinnedNode expected;
  PinnedNode previous;  // outlives its lock
  while (true) {
    std::vector<Node*> dirs = {&from_dir, &to_dir};
    if (expected) dirs.push_back(expected.get());
    const NameLocks locks(std::move(dirs));
    SALIUS_ASSIGN_OR_RETURN(const PinnedNode moved, ChildOf(from_dir, from_name));
    absl::StatusOr<PinnedNode> other = ChildOf(to_dir, to_name);
    if (!other.ok() && StatusErrno(other.status()) != ENOENT) return other.status();
    const bool locks_other = other.ok() && (*other)->is_dir() && how == 0 &&
                             other->get() != &from_dir && other->get() != &to_dir;
    if (locks_other && other->get() != expected.get()) {
      previous = std::move(expected);
      expected = *std::move(other);
      continue;
    }
    Node* const target = other.ok() ? other->get() : nullptr;
    SALIUS_RETURN_IF_ERROR(check_.Rename(from_dir, to_dir, *moved, target, how));
    if (target == moved.get()) return absl::OkStatus();  // two names of one file: nothing to do
    RenameBody body;
    body.from_name = from_name;
    body.to_name = to_name;
    body.flags = flags;
    bool inherits = false;
    if (whiteout) {
      SALIUS_ASSIGN_OR_RETURN(inherits, FillWhiteout(from_dir, caller, body));
    }
    return DoRename(from_dir, to_dir, std::move(body), *moved, target, !inherits);
  }
}

absl::StatusOr<bool> NameOps::FillWhiteout(Node& from_dir, const Caller& caller,
                                           RenameBody& body) {
  CreateBody made;
  made.mode = S_IFCHR;
  SALIUS_RETURN_IF_ERROR(FillInherited(from_dir, caller, made));
  body.whiteout_uid = made.uid;
  body.whiteout_gid = made.gid;
  SALIUS_ASSIGN_OR_RETURN(body.whiteout, issuer_.NewId());
  return !made.xattrs.empty();
}

absl::Status NameOps::DoRename(Node& from_dir, Node& to_dir, RenameBody body, Node& moved,
                               Node* other, bool possible) {
  for (Node* const node : {&from_dir, &to_dir, &moved, other}) {
    if (node != nullptr) SALIUS_RETURN_IF_ERROR(issuer_.EnsureId(*node));
  }
  body.from_dir = from_dir.id.load();
  body.to_dir = to_dir.id.load();
  if (other != nullptr) body.other = other->id.load();
  RecordDraft draft;
  draft.op = Op::kRename;
  draft.file_id = moved.id.load();
  draft.body = body.Encode();
  Node* const displaced = (body.flags & RENAME_EXCHANGE) == 0 ? other : nullptr;
  if (displaced != nullptr) {
    // Data past the log must be synced before the rename: otherwise a power cut would leave holes
    // in place of the old file. The sync's record comes before the rename in the log, so this does
    // not wait for it.
    absl::MutexLock lock(&moved.stream);
    const absl::Status synced = bulk_.Sync(moved).status();
    NodeFds::CloseIdle(moved);
    SALIUS_RETURN_IF_ERROR(synced);
  }
  // As in Remove(): no record of the displaced file may be stamped after this.
  absl::MutexLockMaybe stream(displaced != nullptr ? &displaced->stream : nullptr);
  bool only = false;
  if (displaced != nullptr) {
    displaced->stream.AssertHeld();
    SALIUS_ASSIGN_OR_RETURN(only, HasOneName(*displaced));
    draft.arg0 = only ? 1 : 0;
    possible = possible && !displaced->seen_writing().bulk;
  }
  // A rename that returns early needs its whiteout first.
  PinnedNode whiteout;
  const auto perform = [&](bool early) -> absl::StatusOr<std::optional<Seq>> {
    NameChange change(pending_);  // ends before the whiteout's node does
    AddRename(body, only, from_dir, to_dir, moved, other, change);
    if (whiteout) change.AddObject(*whiteout, 0);
    if (early) {
      SALIUS_ASSIGN_OR_RETURN(early, change.BeginEarly());
      if (!early) waits_.CountUnpredicted();
      if (!early && whiteout) return std::nullopt;
    }
    Node* const left = displaced == nullptr ? other : nullptr;
    SALIUS_ASSIGN_OR_RETURN(
        const Seq seq, Perform(std::move(draft), change, early, [&](const RecordHeader& header) {
          change.Rename(header, from_dir, body.from_name, to_dir, body.to_name, moved,
                        whiteout ? whiteout.get() : left);
        }));
    if (displaced != nullptr && !early) {
      displaced->stream.AssertHeld();
      bulk_.EndOfNameless(*displaced);
    }
    return seq;
  };
  const bool early = waits_.ReturnsEarly({&from_dir, &to_dir}, possible);
  if (early && body.whiteout != kNoFileId) {
    SALIUS_ASSIGN_OR_RETURN(whiteout, MakeObjectOf(body.whiteout, body.Whiteout()));
  }
  absl::StatusOr<std::optional<Seq>> renamed = perform(early);
  if (whiteout && (!renamed.ok() || !renamed->has_value())) {
    whiteout.Reset();
    dirs_.RemoveLeftover(dirs_.tmp_fd(), IdName(body.whiteout));
    if (renamed.ok()) renamed = perform(/*early=*/false);
  }
  SALIUS_RETURN_IF_ERROR(renamed.status());
  if (body.whiteout != kNoFileId) bulk_.NoteCreated(body.whiteout, **renamed);
  return absl::OkStatus();
}

void NameOps::AddRename(const RenameBody& body, bool only, Node& from_dir, Node& to_dir,
                        Node& moved, Node* other, NameChange& change) {
  const bool exchange = (body.flags & RENAME_EXCHANGE) != 0;
  int from_links = 0;
  int to_links = 0;
  if (moved.is_dir()) {
    --from_links;
    ++to_links;
  }
  if (other != nullptr && other->is_dir()) {
    if (exchange) ++from_links;
    --to_links;
  }
  if (&from_dir == &to_dir) {
    to_links += from_links;
  } else {
    change.AddDir(from_dir, from_links);
  }
  change.AddDir(to_dir, to_links);
  change.AddObject(moved, 0);
  if (other == nullptr) return;
  const int lost = other->is_dir() ? -2 : -1;
  change.AddObject(*other, exchange ? 0 : lost);
  if (!exchange && (only || other->is_dir())) change.SetRemoved(*other);
}

}  // namespace salius

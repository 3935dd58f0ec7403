// Attributes and extended attributes.
//
// A time once shown never changes without an operation. There are two ways to that:
// - While a node has unapplied records, its attributes are answered after these were applied (one
//   round trip). When the disk takes longer than the brief wait of Issuer, size and times come from
//   the records, and the answer is provisional. Attribute records are waited for: the caller gets
//   the result of the apply.
// - With names=async the attributes of such a node are predicted (Predictions), and a change of
//   attributes returns at once, where the disk cannot refuse it (ReturnsEarly).
//
// When the volume has failed, size and content come from the extents, so that reads still work.
//
// Errors: absl::Status with the exact errno in its payload. Threads: any.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session/record_draft.h"
#include "client/volume/backing_dirs.h"
#include "client/volume/file_ops.h"
#include "client/volume/health.h"
#include "client/volume/hidden_links.h"
#include "client/volume/issuer.h"
#include "client/volume/node.h"
#include "client/volume/predictions.h"
#include "client/volume/types.h"
#include "log/record.h"
#include "storage/backing.h"
#include "storage/space.h"

namespace salius {

class AttrOps {
 public:
  AttrOps(Backing& backing, Predictions& predictions, Issuer& issuer, FileOps& files,
          HiddenLinks& links, SpaceGuard& space, const Health& health, const BackingDirs& dirs)
      : backing_(backing),
        predictions_(predictions),
        issuer_(issuer),
        files_(files),
        links_(links),
        space_(space),
        health_(health),
        dirs_(dirs) {}
  AttrOps(const AttrOps&) = delete;
  AttrOps& operator=(const AttrOps&) = delete;

  // Returns the attributes. Waits a moment until the file's records are applied, so that the times
  // are the file's own. When the disk is slower it returns size and times as far as known and sets
  // `*provisional`: they may change when the records are applied.
  absl::StatusOr<struct stat> GetAttr(Node& node, bool* provisional = nullptr);
  // The same, of the node that has the name in the directory, with fewer system calls: the name is
  // looked at, not the node's descriptor. ESTALE when the name is not the node's. Without `may_wait`
  // the attributes of a file with unapplied records are provisional at once.
  absl::StatusOr<struct stat> GetAttrAt(Node& node, const Node& dir, const std::string& name,
                                        bool may_wait, bool* provisional);
  // Returns the attributes without a wait, and without a promise that the times stay: for checks.
  absl::StatusOr<struct stat> FactsOf(Node& node);
  // Returns when the backing file was made; nothing where its file system does not keep that. (A
  // file that recovery rebuilt is new.)
  absl::StatusOr<std::optional<timespec>> BirthTime(Node& node);
  // Changes attributes. `mask`: SetAttrMask. A new size is issued like a write, and not waited for;
  // other changes are waited for until they are applied, unless they return early. Returns GetAttr.
  absl::StatusOr<struct stat> SetAttr(Node& node, uint32_t mask, const struct stat& want,
                                      bool* provisional = nullptr);
  // Returns EDQUOT when the group's quota leaves no room for the file. To be called before an
  // unprivileged caller gives the file to the group.
  absl::Status CheckNewGroup(Node& node, gid_t gid);

  absl::StatusOr<std::string> GetXattr(Node& node, const std::string& name);
  absl::StatusOr<std::vector<std::string>> ListXattr(Node& node);  // without salius' own
  // Sets an extended attribute. `flags`: 0, XATTR_CREATE, XATTR_REPLACE. `kill_sgid`:
  // FUSE_SETXATTR_ACL_KILL_SGID.
  absl::Status SetXattr(Node& node, const std::string& name, std::string_view value, int flags,
                        bool kill_sgid);
  absl::Status RemoveXattr(Node& node, const std::string& name);

 private:
  // Returns GetAttr, or nothing when the attributes are not predicted. `stat` reads those of the
  // backing file.
  template <typename Stat>
  absl::StatusOr<std::optional<struct stat>> Predicted(Node& node, bool* provisional,
                                                      const Stat& stat);
  // Returns the result of GetAttr without predictions. `current`: OK, or the reason why records may
  // be unapplied, as of Issuer::AwaitNodeBriefly.
  template <typename Stat>
  absl::StatusOr<struct stat> Attributes(Node& node, const absl::Status& current, bool* provisional,
                                         const Stat& stat);
  // Returns an extended attribute, with the disk's errors.
  absl::StatusOr<std::string> Xattr(Node& node, const std::string& name);
  // Returns whether a change of the node's attributes returns before it is applied.
  absl::StatusOr<bool> ReturnsEarly(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Returns whether the disk has room for the extended attribute beside the node's others.
  absl::StatusOr<bool> XattrFits(Node& node, const std::string& name, std::string_view value);
  // Issues an attribute record. If `early`, `enter` puts it into the node's prediction; otherwise
  // its result is awaited.
  absl::Status Change(Node& node, RecordDraft draft, bool early, Predictions::Enter enter)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  absl::Status SetAttributes(Node& node, const AttrBody& body)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);

  Backing& backing_;
  Predictions& predictions_;
  Issuer& issuer_;
  FileOps& files_;
  HiddenLinks& links_;
  SpaceGuard& space_;
  const Health& health_;
  const BackingDirs& dirs_;
};

}  // namespace salius

// The attributes that a file or directory will have when all its issued records are applied. While
// records are pending, callers are answered from here, without the disk.
//
// It begins with the attributes of the disk, and each record changes it as its apply changes the
// disk (storage/apply.h). Records are applied with root's rights, so these rules hold:
// - chown takes suid from all but directories, sgid if the group may execute, and the capability.
//   chmod sets all bits as they are. A symbolic link has no mode of its own.
// - Data takes the capability, and leaves suid and sgid: where the caller has no right to keep
//   them, the front removes them by a mode record first.
// - The permission bits and the access ACL follow each other. An ACL that says no more than the
//   mode is not stored.
// - Each change sets ctime. Data, and names in a directory, set mtime too.
//
// Attribute and data records of a node are entered in order. Names of a directory have another
// lock: the seqs decide about times that both change.
//
// pure: no thread, lock, socket or clock. The owner (Node) locks.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"
#include "log/record.h"

namespace salius {

class Prediction {
 public:
  // An extended attribute that a pending record changes.
  struct Xattr {
    std::optional<std::string> value;  // nothing: it is removed
  };

  // `disk`: the attributes when no record of the node is pending.
  explicit Prediction(const struct stat& disk) : stat_(disk) {}

  // ---- changes, each by record `seq`. `now`: the time that the file gets.
  // Enters kWrite, kTruncate or kFallocate.
  void Data(const RecordHeader& header, const timespec& now);
  // Enters kSetAttr. `disk_acl`: the access ACL on the disk, empty if there is none. It counts only
  // with a mode, and only when no record of the ACL is pending.
  void SetAttr(Seq seq, const AttrBody& attr, const timespec& now, std::string_view disk_acl = {});
  // Enters kSetXattr or kRemoveXattr. An ACL must be one that the file system takes.
  void SetXattr(Seq seq, const std::string& name, std::string_view value, const timespec& now);
  void RemoveXattr(Seq seq, const std::string& name, const timespec& now);
  // Returns whether SetXattr would change an attribute, when the extended one is `old` (nothing: it
  // is not there).
  bool IsChangedBy(const std::string& name, std::string_view value,
                   const std::optional<std::string>& old) const;
  // A name of the object was made or removed: it has `links` afterwards.
  void SetLinks(Seq seq, nlink_t links, const timespec& now);
  // A name of the object was changed (rename).
  void Rename(Seq seq, const timespec& now) { Touch(seq, now); }
  // Names in the directory were changed: it has `links` afterwards.
  void ChangeNames(Seq seq, nlink_t links, const timespec& now);

  // ---- the end
  // Notes that the node's records up to `seq` are applied. Returns whether that is all of them:
  // then the disk is right, and this may go.
  bool NoteApplied(Seq seq);
  // Notes that the disk got an implied mtime before the end, and perhaps after a later record was
  // applied that set another one. The disk must get the mtime again.
  void NoteMtimeGiven() { mtime_given_ = true; }
  // Returns the last record that counts here.
  Seq last_seq() const { return last_seq_; }

  // ---- answers
  // Returns the attributes. st_blocks is an estimate, above 0 as soon as a write is pending.
  const struct stat& attributes() const { return stat_; }
  // Returns whether st_blocks may be wrong for good: blocks were allocated or freed within the file.
  bool blocks_unsure() const { return blocks_unsure_; }
  // Returns the pending state of an extended attribute; nothing when the disk is right.
  std::optional<Xattr> FindXattr(const std::string& name) const;
  // Changes the names of the extended attributes on the disk to those that callers see.
  void MergeXattrNames(std::vector<std::string>& names) const;

  // Returns the mtime that the disk must get after the last apply, because that gives the disk a
  // later one. Nothing: the disk's is right.
  std::optional<timespec> ImpliedMtime() const;
  // Returns the ctime, if a record gave it: see KeptCtime.
  std::optional<timespec> ImpliedCtime() const;

 private:
  struct PendingXattr {
    std::optional<std::string> value;
    Seq seq = 0;
  };
  // A time that records change.
  struct Clock {
    Seq seq = 0;           // the record that set it
    bool implied = false;  // it was not given by a caller: the apply gives the disk another time
  };

  void NoteSeq(Seq seq);
  void Touch(Seq seq, const timespec& now);
  void TouchData(Seq seq, const timespec& now);
  void Chown(Seq seq, const AttrBody& attr);
  void Chmod(Seq seq, mode_t mode, std::string_view disk_acl);
  void SetAccessAcl(Seq seq, std::string_view value);
  void PutXattr(Seq seq, const std::string& name, std::optional<std::string> value);

  struct stat stat_;
  bool blocks_unsure_ = false;
  Seq last_seq_ = 0;
  Seq applied_seq_ = 0;
  Clock mtime_;
  bool mtime_given_ = false;
  Clock ctime_;
  Seq capability_gone_ = 0;  // the last record that takes the file's capability, if it has one
  absl::flat_hash_map<std::string, PendingXattr> xattrs_;
};

// Returns whether a time is before another.
bool IsBefore(const timespec& a, const timespec& b);

// The ctime that records gave while they were pending. No call sets a ctime, so the disk's is
// another. The predicted one is kept until the disk's changes again.
struct KeptCtime {
  timespec predicted{};
  timespec disk{};  // after the last apply; 0: none is kept

  // Puts the predicted ctime into attributes that were read from the disk. A later change without a
  // prediction may have a time before it, because the kernel's clock for files is some milliseconds
  // behind; its ctime follows the predicted one then.
  void Merge(struct stat& attributes) const;
};

}  // namespace salius

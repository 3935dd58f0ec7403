// `.salius/applied`: the applied watermark as a shared mapping, for one purpose only. When just the
// process died (same boot, same mount of the backing file system), the page cache is intact and so
// is this page, so recovery need only replay what was not applied. After a power cut the file is
// meaningless and is ignored: that is why the state names boot id and unique mount id.
//
// The order matters: Store(seq) is called after the records up to `seq` were applied to the page
// cache, and before those who wait for them are told.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"

namespace salius {

class AppliedMark {
 public:
  static constexpr uint64_t kUnknownComplaints = UINT64_MAX;

  // Whether recovery relies on the file, where `fd` lies: an ext4 that counts its errors, and whose
  // data does not go through its journal. (There each first store into a page needs the journal,
  // and ends the process with SIGBUS when that was aborted.)
  static bool IsReliedOn(int fd);
  // Creates or opens the file in `salius_fd` and maps it. For a new session call Reset.
  static absl::StatusOr<AppliedMark> Open(int salius_fd);
  // For where recovery would not rely on the file: the same in memory of this process only. A store
  // into a mapped file may end the process there (SIGBUS), when a full btrfs has no room for the
  // page's copy, or XFS has shut down.
  static AppliedMark InMemory();
  // applied = 0 of `epoch`. `complaints`: what Ext4Complaints() says now, or kUnknownComplaints.
  void Reset(Epoch epoch, uint64_t complaints);
  void Store(Seq applied);  // monotone; one aligned 8-byte store
  // A sync of the backing file system begins, has ended. In between, and for good after one that
  // failed, the mark says nothing: the page cache may call clean what is on no disk, and a later
  // sync would not say so again. A process that is killed in a sync never hears how that ended.
  // Then recovery must replay from the checkpoint.
  void SyncBegins();
  void SyncEnds(bool ok);
  Epoch epoch() const;
  Seq applied() const;
  // Those of Reset(), or kUnknownComplaints. Where the kernel has more to say now, some data may
  // not have reached the disk, and whoever synced first was told so: another process, say. Then the
  // mark must not be relied on.
  uint64_t complaints() const;

  AppliedMark(AppliedMark&& other) noexcept;
  AppliedMark& operator=(AppliedMark&& other) noexcept;
  ~AppliedMark();

 private:
  explicit AppliedMark(uint64_t* page) : page_(page) {}
  void Unmap();
  // [0] magic, [1] epoch, [2] applied, [3] check = epoch ^ magic, [4] complaints
  uint64_t* page_ = nullptr;
  std::unique_ptr<uint64_t[]> memory_;  // of InMemory()
  bool said_ = false;                   // before the sync that is under way
};

}  // namespace salius

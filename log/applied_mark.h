// `.salius/applied`: the applied watermark as a shared mapping, for one purpose only. When just the
// process died (same boot, same mount of the backing file system), the page cache is intact and so
// is this page. Then recovery need only replay the records that were not applied. After a power cut
// the file is meaningless and is ignored: that is why the state names boot id and unique mount id.
//
// The mapping is the kernel's: only its file systems can be relied on.
//
// The order matters: Store(seq) is called after the records up to `seq` were applied to the page
// cache, and before their waiters are woken.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files.h"
#include "common/ids.h"

namespace salius {

class AppliedMark {
 public:
  static constexpr uint64_t kUnknownComplaints = UINT64_MAX;
  static constexpr char kFileName[] = "applied";  // in .salius/

  // Whether recovery relies on the file, where `fd` lies: on an ext4 that counts its errors, and
  // whose data does not go through its journal. (With data in the journal each first store into a
  // page needs the journal, and ends the process with SIGBUS when that was aborted.)
  static bool IsReliedOn(Files& files, int fd);
  // Creates or opens the file in `salius_fd` and maps it. For a new session call Reset.
  static absl::StatusOr<AppliedMark> Open(int salius_fd);
  // Returns a mark in memory of this process only, for file systems where recovery would not rely
  // on the file. There a store into a mapped file may end the process (SIGBUS): when a full btrfs
  // has no room for the page's copy, or when XFS has shut down.
  static AppliedMark InMemory();
  // Sets applied = 0 of `epoch`.
  // complaints: the present result of Ext4Complaints(), or kUnknownComplaints.
  void Reset(Epoch epoch, uint64_t complaints);
  void Store(Seq applied);  // monotone; one aligned 8-byte store
  // Note that a sync of the backing file system begins, or has ended. In between, and for good
  // after one that failed, the mark says nothing: the page cache may call clean a page that is on
  // no disk, and a later sync would not report it again. A process that is killed in a sync never
  // learns its result. Then recovery must replay from the checkpoint.
  void SyncBegins();
  void SyncEnds(bool ok);
  Epoch epoch() const;
  Seq applied() const;
  // Returns those of Reset(), or kUnknownComplaints. Where the kernel has more complaints now, some
  // data may not have reached the disk. The error may have gone to another process that synced
  // first. Then the mark must not be relied on.
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
  bool was_valid_ = false;  // the mark was valid when the present sync began
};

}  // namespace salius

// One process's use of a direct volume: the implementation of Files on the shared window.
//
// A sync, by the phase of the session:
//
//     phase                     file        the sync
//     kLocal, kEnded            any         fsync(2)
//     kStamping, kGoingLocal    any         waits until the phase ends
//     kReplicated               covered     waits until the file's last record is durable
//     kReplicated               uncovered   fsync(2), also of the directory of a new name; then a
//                                           record kOnDisk, which it awaits
//     kFailed                   any         EIO
//
// It begins again when phase or generation change meanwhile. A success is returned only while the
// coordinator lives.
//
// Under external synchrony (GrantEarly) a sync waits for nothing in the phases but kEnded. A sync
// that a record cannot vouch for is noted as owed before it returns (direct_gate.h).
//
// Needs the standard library, POSIX and ISA-L only; never allocates. It may lie in static storage:
// construction does nothing, and there is no destructor.
#pragma once

#include "client/direct/process/acknowledged.h"
#include "client/direct/process/attach.h"
#include "client/direct/process/direct_gate.h"
#include "client/direct/process/files.h"
#include "client/direct/process/membership.h"
#include "client/direct/window/layout.h"
#include "client/direct/window/stamp.h"

namespace salius::direct {

class Process final : public Files {
 public:
  Process() = default;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Attaches to the coordinator whose socket is at `path`, and maps the window. Returns 0 or an
  // errno, with the reason in `text` (of `text_bytes` bytes). Once; nothing else before.
  int Attach(const char* path, char* text, size_t text_bytes);
  // Uses descriptors that were handed over already; they become this object's. Returns as Attach.
  int Adopt(const Attached& attached);

  // The outputs of this process wait at gate() from now on, so its sync calls may return early.
  // Nothing happens when the session is not one of external synchrony.
  void GrantEarly();
  bool early() const { return early_; }
  DirectGate& gate() { return gate_; }

  bool attached() const { return window_.valid(); }
  const SharedWindow& window() const { return window_; }

  bool Owns(int fd) const override;
  File Open(int fd, bool made) override;
  void AwaitRoom(File file, size_t bytes) override;
  void Lock(File file) override;
  void Unlock(File file) override;
  void Changed() override;
  uint64_t LogWrite(File file, uint64_t offset, const iovec* parts, int count,
                    size_t bytes) override;
  uint64_t LogTruncate(File file, uint64_t size) override;
  void BeginUnseen(File file, Reason reason) override;
  void EndUnseen(File file, Reason reason) override;
  void Uncover(File file, Reason reason) override;
  File Known(uint64_t device, uint64_t inode) override;
  void UncoverInode(uint64_t device, uint64_t inode, Reason reason) override;
  void UncoverAll(Reason reason) override;
  int Sync(File file, int fd, bool data_only) override;
  int SyncNow(File file, int fd, bool data_only) override;
  uint64_t Ticket(File file) override;
  int AwaitTicket(uint64_t ticket, int64_t timeout_ns) override;
  Watermarks Marks() const override;
  int SyncAll() override;
  bool IsOfVolume(int fd) const override;
  bool IsOutside(int fd) const override;
  bool OweDirectory(int fd) override;
  void AfterFork() override;

 private:
  static constexpr int kAgain = -1;  // of a sync's step: phase or generation changed

  bool Current(File file) const;
  // Returns whether everything written to the file has a record, or is on the disk.
  bool Covered(File file, PhaseWord phase) const;
  uint64_t TryLogWrite(File file, uint64_t offset, const iovec* parts, int count, size_t bytes);
  uint64_t TryLogTruncate(File file, uint64_t size);
  // Returns whether the next write of the file is logged. Under its stripe.
  bool Logs(const FileEntry& entry) const;
  // Stamps one record of the file. Under its stripe.
  Stamped Log(uint32_t file, Draft& draft);
  // Gives the file behind `fd` its id, or reads it. Where that is not possible, the file is
  // uncovered until it is.
  void Identify(int fd, uint64_t inode, uint32_t file, Place place);
  FileId NewFileId();
  // Syncs the file by a promise to the next output. kAgain: the sync must wait, as without a gate.
  int SyncEarly(File file);
  int SyncReplicated(File file, int fd, PhaseWord phase);
  int RealSync(File file, int fd, PhaseWord phase, uint64_t uncovered);
  int Await(Seq seq, PhaseWord phase) const;
  int FailSync(FileEntry& entry, int error) const;
  void CountReasons(uint32_t reasons) const;
  void CountLocal() const;

  SharedWindow window_;
  Acknowledged acknowledged_;
  DirectGate gate_;
  bool early_ = false;
  int connection_ = -1;
  int descriptors_[kAttachDescriptors] = {-1, -1, -1, -1};
};

}  // namespace salius::direct

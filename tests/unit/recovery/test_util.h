// Records, volumes and file systems for the tests of recovery/.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/file.h"
#include "gtest/gtest.h"
#include "log/record.h"
#include "recovery/agree/record_set.h"

namespace salius::recovery {

#define ASSERT_OK(...) ASSERT_EQ((__VA_ARGS__), absl::OkStatus())
#define EXPECT_OK(...) EXPECT_EQ((__VA_ARGS__), absl::OkStatus())

inline VolumeId TestVolume() {
  VolumeId id;
  id.bytes.fill(0x5A);
  return id;
}

// Stamps records of one epoch, one after the other.
class Stamper {
 public:
  explicit Stamper(Epoch epoch, VolumeId volume = TestVolume()) : epoch_(epoch), volume_(volume) {}

  // Whether the callers of the following changes of names and attributes wait for their results.
  bool awaited = true;
  // Marks that the following records carry.
  Seq durable = 0;
  Seq checkpoint = 0;

  Seq last() const { return seq_; }
  void SkipTo(Seq seq) { seq_ = seq; }
  const std::vector<std::string>& all() const { return all_; }

  std::string Stamp(Op op, FileId id, std::string_view body, uint64_t arg0 = 0, uint64_t arg1 = 0,
                    uint64_t arg2 = 0) {
    RecordHeader header;
    header.op = op;
    header.volume = volume_;
    header.epoch = epoch_;
    header.seq = ++seq_;
    header.timestamp_ns = 1'600'000'000'000'000'000ull + seq_ * 1'000'000;
    header.durable_mark = durable;
    header.checkpoint_mark = checkpoint;
    header.file_id = id;
    header.arg0 = arg0;
    header.arg1 = arg1;
    const bool name_or_attribute = op >= Op::kSetAttr && op <= Op::kRename;
    header.arg2 = name_or_attribute && awaited ? kAwaited : arg2;
    all_.push_back(EncodeRecord(header, body));
    return all_.back();
  }
  std::string Write(FileId id, uint64_t offset, std::string_view data) {
    return Stamp(Op::kWrite, id, data, offset);
  }
  std::string Truncate(FileId id, uint64_t size) { return Stamp(Op::kTruncate, id, "", size); }
  std::string Create(FileId id, FileId dir, const std::string& name, uint32_t mode) {
    CreateBody body;
    body.dir = dir;
    body.name = name;
    body.mode = mode;
    if (S_ISLNK(mode)) body.symlink_target = "target-of-" + name;
    return Stamp(Op::kCreate, id, body.Encode());
  }
  std::string CreateFile(FileId id, FileId dir, const std::string& name) {
    return Create(id, dir, name, S_IFREG | 0644);
  }
  std::string MakeDir(FileId id, FileId dir, const std::string& name) {
    return Create(id, dir, name, S_IFDIR | 0755);
  }
  std::string Link(FileId id, FileId dir, const std::string& name) {
    return Stamp(Op::kLink, id, NameBody{dir, name}.Encode());
  }
  // Stamps an unlink. `only`: the file has no other name.
  std::string Unlink(FileId id, FileId dir, const std::string& name, bool directory = false,
                     bool only = false) {
    return Stamp(Op::kUnlink, id, NameBody{dir, name}.Encode(), directory ? 1 : 0, only ? 1 : 0);
  }
  std::string Rename(FileId id, FileId from_dir, const std::string& from, FileId to_dir,
                     const std::string& to, FileId other = kNoFileId, uint32_t flags = 0,
                     bool only = false) {
    RenameBody body;
    body.from_dir = from_dir;
    body.from_name = from;
    body.to_dir = to_dir;
    body.to_name = to;
    body.flags = flags;
    body.other = other;
    return Stamp(Op::kRename, id, body.Encode(), only ? 1 : 0);
  }
  std::string RenameWithWhiteout(FileId id, FileId from_dir, const std::string& from,
                                 FileId to_dir, const std::string& to, FileId other,
                                 FileId whiteout, bool only = false) {
    RenameBody body;
    body.from_dir = from_dir;
    body.from_name = from;
    body.to_dir = to_dir;
    body.to_name = to;
    body.flags = RENAME_WHITEOUT;
    body.other = other;
    body.whiteout = whiteout;
    body.whiteout_uid = body.whiteout_gid = 7;
    return Stamp(Op::kRename, id, body.Encode(), only ? 1 : 0);
  }
  std::string Cancel(Seq seq) { return Stamp(Op::kCancel, kNoFileId, "", seq); }
  std::string OnDisk(FileId id, Seq seq) { return Stamp(Op::kOnDisk, id, "", seq); }
  std::string Chmod(FileId id, uint32_t mode) {
    AttrBody body;
    body.mask = kAttrMode;
    body.mode = mode;
    return Stamp(Op::kSetAttr, id, body.Encode());
  }
  std::string SetMtime(FileId id, int64_t sec) {
    AttrBody body;
    body.mask = kAttrMtime;
    body.mtime_sec = sec;
    return Stamp(Op::kSetAttr, id, body.Encode());
  }
  std::string Adopt(FileId id, const std::string& path, const FileHandle& handle) {
    return Stamp(Op::kAdopt, id, AdoptBody{path, handle.type, handle.bytes}.Encode());
  }

 private:
  const Epoch epoch_;
  const VolumeId volume_;
  Seq seq_ = 0;
  std::vector<std::string> all_;
};

// Returns a set of the given records.
inline RecordSet SetOf(const std::vector<std::string>& records) {
  RecordSet set;
  for (const std::string& record : records) SALIUS_CHECK_OK(set.Add(record));
  return set;
}

inline std::vector<const RecordView*> PointersTo(const RecordSet& set) {
  std::vector<const RecordView*> pointers;
  for (const RecordView& view : set.views()) pointers.push_back(&view);
  return pointers;
}

// A directory that is removed with all its contents.
class TempDir {
 public:
  TempDir() {
    const char* base = getenv("TEST_TMPDIR");
    path_ = std::string(base != nullptr ? base : "/tmp") + "/recovery-XXXXXX";
    SALIUS_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline UniqueFd MustOpen(const std::string& path, int flags = O_RDONLY | O_DIRECTORY) {
  absl::StatusOr<UniqueFd> fd = OpenAt(AT_FDCWD, path, flags, 0644);
  SALIUS_CHECK_OK(fd);
  return *std::move(fd);
}

// Writes into a new file until the file system has no block left, also when all of it is written
// back. Data that waits for write-back has more blocks set aside than it takes.
inline void FillDisk(const std::string& path) {
  const UniqueFd fd = MustOpen(path, O_RDWR | O_CREAT);
  const std::string block(4096, 'x');
  int64_t at = 0;
  for (int64_t before = -1; at != before;) {
    before = at;
    while (PwriteFull(fd.get(), AsBytes(block), at).ok()) at += 4096;
    SALIUS_CHECK_OK(SyncFs(fd.get()));
  }
}

inline void WriteFile(const std::string& path, std::string_view content) {
  const UniqueFd fd = MustOpen(path, O_WRONLY | O_CREAT | O_TRUNC);
  SALIUS_CHECK_OK(PwriteFull(fd.get(), AsBytes(content), 0));
}

inline std::string ReadFile(const std::string& path) {
  absl::StatusOr<std::string> content = ReadWholeFile(path);
  return content.ok() ? *content : "<" + std::string(content.status().message()) + ">";
}

inline bool Exists(const std::string& path) {
  struct stat st;
  return lstat(path.c_str(), &st) == 0;
}

// Gives this process a mount namespace of its own. A mount that another process copied into its
// namespace stays there, and a file system after a simulated power cut would come back unchanged.
inline bool OwnMountNamespace() {
  static const bool own =
      unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  return own;
}

// An ext4 file system in an image, mounted while the object lives. mounted() is false without root.
class LoopExt4 {
 public:
  explicit LoopExt4(uint64_t mebibytes, const std::string& options = "") {
    path_ = dir_.path() + "/mnt";
    SALIUS_CHECK(mkdir(path_.c_str(), 0755) == 0);
    const std::string command = absl::StrFormat("truncate -s %dM %s && mkfs.ext4 -q -F -m 0 %s %s",
                                                mebibytes, image(), options, image());
    mounted_ = OwnMountNamespace() && system(command.c_str()) == 0 && Mount();
  }
  ~LoopExt4() {
    if (mounted_) umount2(path_.c_str(), 0);
  }
  bool mounted() const { return mounted_; }
  const std::string& path() const { return path_; }

  // Cuts the power and mounts again: data that was not on the disk is gone. No descriptor may be
  // open on it.
  void PowerCut() {
    {
      const UniqueFd fd = MustOpen(path_);
      uint32_t no_log_flush = 2;  // EXT4_GOING_FLAGS_NOLOGFLUSH
      SALIUS_CHECK(ioctl(fd.get(), 0x8004587D /* EXT4_IOC_SHUTDOWN */, &no_log_flush) == 0);
    }
    SALIUS_CHECK(umount2(path_.c_str(), 0) == 0);
    SALIUS_CHECK(Mount());
  }

 private:
  std::string image() const { return dir_.path() + "/image"; }
  bool Mount() const {
    return system(absl::StrFormat("mount -o loop %s %s", image(), path_).c_str()) == 0;
  }

  TempDir dir_;
  std::string path_;
  bool mounted_ = false;
};

}  // namespace salius::recovery

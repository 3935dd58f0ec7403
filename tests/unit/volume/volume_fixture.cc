#include "tests/unit/volume/volume_fixture.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "client/session/pipeline.h"
#include "storage/apply.h"
#include "storage/volume_config.h"
#include "tests/unit/volume/fake_stream.h"

namespace salius {
namespace {

constexpr char kExt4[] = "mkfs.ext4 -q -b 4096 -m 0";
constexpr char kXfs[] = "mkfs.xfs -q";
constexpr uint64_t kLeastXfsBytes = uint64_t{320} << 20;
constexpr int kDirectory = O_RDONLY | O_DIRECTORY;

// Returns the parts of a path: the directory ("." for the root) and the name in it.
std::pair<std::string, std::string> Split(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == path.npos) return {".", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

}  // namespace

TestWorld& DefaultWorld() {
  static TestWorld world;
  return world;
}

void VolumeFixture::Configure() {
  const uint64_t log_max = config.log_max_bytes;
  const uint64_t bulk = config.bulk_limit_bytes;
  const uint64_t tau = config.tau_ms;
  config = DefaultVolumeConfig();
  config.log_max_bytes = log_max != 0 ? log_max : 4 * kMiB;
  config.stable_log_bytes = config.log_max_bytes * 5 / 4 + 2 * kMiB;
  config.ballast_bytes = kMiB;
  if (bulk != 0) config.bulk_limit_bytes = bulk;
  if (tau != 0) config.tau_ms = tau;
}

void VolumeFixture::MakeInMemory(uint64_t bytes) {
  Configure();
  MemoryBacking::Options options;
  options.bytes = bytes;
  memory = std::make_unique<MemoryBacking>(options);
  root_ = std::move(*memory->Reopen(memory->root(), kDirectory));
  MakeBackingDir(kSaliusDir);
  salius_ = OpenBacking(kSaliusDir, kDirectory);
  for (const char* const name : {kOpenDirName, kTmpDirName}) {
    SALIUS_CHECK_OK(memory->MkdirAt(salius_.get(), name, 0700));
  }
  SALIUS_CHECK_OK(memory->MakeNode(salius_.get(), kLockFileName, S_IFREG | 0600, 0));
  file_ = std::move(*memory->OpenAt(salius_.get(), kLockFileName, O_RDWR));
  SALIUS_CHECK_OK(WriteFileId(*memory, root_.get(), kRootFileId));
}

void VolumeFixture::MakeClosed(uint64_t bytes) {
  switch (DefaultWorld().disk) {
    case TestWorld::Disk::kMemory:
      return MakeInMemory(bytes);
    case TestWorld::Disk::kExt4:
      return MakeClosed(bytes, kExt4);
    case TestWorld::Disk::kXfs:
      return MakeClosed(std::max(bytes, kLeastXfsBytes), kXfs);
  }
}

void VolumeFixture::MakeClosed(uint64_t bytes, const std::string& mkfs,
                               const std::string& mount_options) {
  if (geteuid() != 0) GTEST_SKIP() << "loop devices need root";
  scratch = std::make_unique<ScratchFs>(bytes, mkfs, mount_options);
  Configure();
  SALIUS_CHECK_OK(CreateVolume(scratch->path(), config));
  root_ = std::move(*LinuxBacking().OpenAt(AT_FDCWD, scratch->path(), kDirectory));
}

void VolumeFixture::Make(uint64_t bytes) {
  MakeClosed(bytes);
  if (!IsSkipped()) Open();
}

void VolumeFixture::Make(uint64_t bytes, const std::string& mkfs,
                         const std::string& mount_options) {
  MakeClosed(bytes, mkfs, mount_options);
  if (!IsSkipped()) Open();
}

absl::StatusOr<std::unique_ptr<Volume>> VolumeFixture::OpenInMemory(const VolumeOptions& options) {
  SALIUS_ASSIGN_OR_RETURN(BackingDirs dirs, BackingDirs::Open(*memory, {.root = root_.get(),
                                                                        .salius = salius_.get(),
                                                                        .file = file_.get()}));
  return Volume::OpenIn(std::move(dirs), id_ceiling, descriptors, options,
                        [&](ApplySink& sink) -> absl::StatusOr<std::unique_ptr<RecordStream>> {
                          return std::make_unique<FakeStream>(sink, id_ceiling);
                        });
}

void VolumeFixture::Open() {
  const VolumeOptions options{.config = config,
                              .noatime = noatime,
                              .names_early = early,
                              .dirsync = dirsync,
                              .pending_names = pending_names,
                              .fetch = fetch,
                              .patch_memory_bytes = patch_memory,
                              .workers = workers,
                              .contract = contract};
  absl::StatusOr<std::unique_ptr<Volume>> opened;
  if (memory != nullptr) {
    opened = OpenInMemory(options);
  } else {
    auto dir = VolumeDir::Open(scratch->path(), /*lock=*/true);
    SALIUS_CHECK_OK(dir);
    opened = fake_stream ? Volume::Open(std::move(*dir), options, FakeStream::Start)
                         : Volume::Open(std::move(*dir), options, StartPipeline);
  }
  SALIUS_CHECK_OK(opened);
  volume = std::move(*opened);
}

void VolumeFixture::Close() {
  if (memory != nullptr) id_ceiling = *volume->stream().NewFileId();
  SALIUS_CHECK_OK(volume->Close());
  volume.reset();
}

void VolumeFixture::TearDown() {
  volume.reset();
  root_.Reset();
  salius_.Reset();
  file_.Reset();
  scratch.reset();
}

Node& VolumeFixture::Find(Node& dir, const std::string& name) {
  auto entry = volume->names().Lookup(dir, name);
  SALIUS_CHECK_OK(entry) << name;
  return *entry->node;
}

Node& VolumeFixture::Dir(Node& parent, const std::string& name) {
  auto entry = volume->names().MakeDir(parent, name, 0755, caller);
  SALIUS_CHECK_OK(entry) << name;
  return *entry->node;
}

Handle* VolumeFixture::Create(Node& dir, const std::string& name, int flags) {
  auto created = volume->names().CreateFile(dir, name, flags, 0644, caller);
  SALIUS_CHECK_OK(created) << name;
  return created->handle;
}

Handle* VolumeFixture::OpenFile(Node& node, int flags) {
  auto handle = volume->open_files().Open(node, flags);
  SALIUS_CHECK_OK(handle);
  return *handle;
}

void VolumeFixture::Write(Handle* handle, uint64_t offset, const std::string& data,
                          Contract contract) {
  const auto written = volume->files().Write(*handle, offset, data, /*append=*/false, contract);
  SALIUS_CHECK_OK(written);
  SALIUS_CHECK(*written == data.size());
}

absl::Status VolumeFixture::Fsync(Handle* handle) {
  SALIUS_ASSIGN_OR_RETURN(const Ticket ticket, volume->files().StartFsync(*handle));
  return volume->files().Await(ticket);
}

std::string VolumeFixture::Read(Handle* handle, uint64_t offset, size_t size) {
  std::string out;
  SALIUS_CHECK_OK(volume->files().Read(*handle, offset, size, &out));
  return out;
}

struct stat VolumeFixture::Stat(Node& node) {
  auto st = volume->attrs().GetAttr(node);
  SALIUS_CHECK_OK(st);
  return *st;
}

BackingFd VolumeFixture::OpenBacking(const std::string& path, int flags) {
  if (volume != nullptr && early) {
    static_cast<void>(volume->stream().WaitApplied(volume->stream().watermarks().issued));
  }
  const std::vector<std::string> names = absl::StrSplit(path, '/');
  BackingFd at;
  for (size_t i = 0; i < names.size(); ++i) {
    auto next = backing().OpenAt(i == 0 ? backing_root() : at.get(), names[i],
                                 i + 1 == names.size() ? flags : O_PATH | O_DIRECTORY);
    SALIUS_CHECK_OK(next) << path;
    at = std::move(*next);
  }
  return at;
}

bool VolumeFixture::IsThere(const std::string& path) {
  const auto [dir, name] = Split(path);
  const BackingFd parent = OpenBacking(dir, O_PATH | O_DIRECTORY);
  const absl::Status found = backing().StatAt(parent.get(), name).status();
  SALIUS_CHECK(found.ok() || absl::IsNotFound(found)) << found;
  return found.ok();
}

std::string VolumeFixture::BackingContent(const std::string& path) {
  const BackingFd fd = OpenBacking(path, O_RDONLY);
  std::string content(static_cast<size_t>(backing().Stat(fd.get())->st_size), '\0');
  const auto count = backing().Pread(fd.get(), content.data(), content.size(), 0);
  SALIUS_CHECK_OK(count) << path;
  content.resize(*count);
  return content;
}

FileId VolumeFixture::IdOf(const std::string& path) {
  const auto id = ReadFileId(backing(), OpenBacking(path).get());
  SALIUS_CHECK_OK(id) << path;
  return *id;
}

void VolumeFixture::SetId(const std::string& path, FileId id) {
  SALIUS_CHECK_OK(WriteFileId(backing(), OpenBacking(path).get(), id));
}

void VolumeFixture::MakeBackingFile(const std::string& path, const std::string& content) {
  const auto [dir, name] = Split(path);
  const BackingFd parent = OpenBacking(dir, O_PATH | O_DIRECTORY);
  SALIUS_CHECK_OK(backing().MakeNode(parent.get(), name, S_IFREG | 0644, 0));
  if (content.empty()) return;
  SALIUS_CHECK_OK(backing().Pwrite(OpenBacking(path, O_RDWR).get(), content, 0));
}

void VolumeFixture::MakeBackingDir(const std::string& path) {
  const auto [dir, name] = Split(path);
  const BackingFd parent = OpenBacking(dir, O_PATH | O_DIRECTORY);
  SALIUS_CHECK_OK(backing().MkdirAt(parent.get(), name, 0755));
}

void VolumeFixture::SetMarks(const std::string& path, const fs::ChangeMarks& marks) {
  const BackingFd fd = OpenBacking(path, O_RDONLY);
  if (memory != nullptr) return memory->SetMarks(fd.get(), marks);
  int flags = 0;
  SALIUS_CHECK(ioctl(fd.get(), FS_IOC_GETFLAGS, &flags) == 0);
  flags &= ~(FS_IMMUTABLE_FL | FS_APPEND_FL);
  flags |= (marks.immutable ? FS_IMMUTABLE_FL : 0) | (marks.append_only ? FS_APPEND_FL : 0);
  SALIUS_CHECK(ioctl(fd.get(), FS_IOC_SETFLAGS, &flags) == 0);
}

void VolumeFixture::SetDirsync(const std::string& path, bool on) {
  auto opened = backing().OpenAt(backing_root(), path, kDirectory);
  SALIUS_CHECK_OK(opened);
  if (memory != nullptr) return memory->SetDirsync(opened->get(), on);
  constexpr int kEither = FS_DIRSYNC_FL | FS_SYNC_FL;
  int flags = 0;
  SALIUS_CHECK(ioctl(opened->get(), FS_IOC_GETFLAGS, &flags) == 0);
  for (const int mark : {FS_DIRSYNC_FL, FS_SYNC_FL}) {
    int wanted = (flags & ~kEither) | (on ? mark : 0);
    if (ioctl(opened->get(), FS_IOC_SETFLAGS, &wanted) == 0) return;
  }
  SALIUS_CHECK(false) << "a directory cannot be made synchronous";
}

}  // namespace salius

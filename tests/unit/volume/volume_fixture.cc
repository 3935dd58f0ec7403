#include "tests/unit/volume/volume_fixture.h"

#include <unistd.h>

#include "client/session/pipeline.h"
#include "tests/unit/volume/fake_stream.h"

namespace salius {

bool& FakeStreamByDefault() {
  static bool fake = false;
  return fake;
}

void VolumeFixture::MakeClosed(uint64_t bytes, const std::string& mkfs,
                               const std::string& mount_options) {
  if (geteuid() != 0) GTEST_SKIP() << "loop devices need root";
  scratch = std::make_unique<ScratchFs>(bytes, mkfs, mount_options);
  const uint64_t log_max = config.log_max_bytes;
  const uint64_t bulk = config.bulk_limit_bytes;
  config = DefaultVolumeConfig();
  config.log_max_bytes = log_max != 0 ? log_max : 4 * kMiB;
  config.stable_log_bytes = config.log_max_bytes * 5 / 4 + 2 * kMiB;
  config.ballast_bytes = kMiB;
  if (bulk != 0) config.bulk_limit_bytes = bulk;
  SALIUS_CHECK_OK(CreateVolume(scratch->path(), config));
}

void VolumeFixture::Make(uint64_t bytes, const std::string& mkfs,
                         const std::string& mount_options) {
  MakeClosed(bytes, mkfs, mount_options);
  if (!IsSkipped()) Open();
}

void VolumeFixture::Open() {
  auto dir = VolumeDir::Open(scratch->path(), /*lock=*/true);
  SALIUS_CHECK_OK(dir);
  VolumeOptions options{.config = config, .noatime = noatime};
  auto opened = fake_stream ? Volume::Open(std::move(*dir), options, FakeStream::Start)
                            : Volume::Open(std::move(*dir), options, StartPipeline);
  SALIUS_CHECK_OK(opened);
  volume = std::move(*opened);
}

void VolumeFixture::Close() {
  SALIUS_CHECK_OK(volume->Close());
  volume.reset();
}

void VolumeFixture::TearDown() {
  volume.reset();
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

std::string VolumeFixture::Backing(const std::string& name) const {
  return scratch->path() + "/" + name;
}

std::string VolumeFixture::BackingContent(const std::string& name) const {
  auto content = ReadWholeFile(AT_FDCWD, Backing(name));
  SALIUS_CHECK_OK(content) << name;
  return *content;
}

}  // namespace salius

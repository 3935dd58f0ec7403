#include "tests/unit/recovery/replay_model.h"

#include <dirent.h>
#include <linux/fs.h>
#include <stdio.h>

#include <algorithm>

#include "common/file_system.h"
#include "storage/apply.h"
#include "storage/fs_calls.h"

namespace salius::recovery {
namespace {

std::string Describe(uint32_t type, uint32_t mode, FileId id, const std::string& content) {
  return absl::StrFormat("%o %o id=%d %s", type, S_ISLNK(type) ? 0 : mode, id, content);
}

void ListDiskBelow(const std::string& path, const std::string& prefix, Listing* out) {
  const UniqueFd dir = MustOpen(path);
  const auto names = fs::ListDir(dir.get());
  SALIUS_CHECK_OK(names);
  for (const std::string& name : *names) {
    if (prefix.empty() && name == ".salius") continue;
    const std::string full = path + "/" + name;
    const UniqueFd fd = MustOpen(full, O_PATH | O_NOFOLLOW);
    const struct stat st = *fs::StatAt(fd.get(), "");
    const auto id = ReadFileId(fd.get());
    SALIUS_CHECK_OK(id);
    std::string content;
    if (S_ISREG(st.st_mode)) content = ReadFile(full);
    if (S_ISLNK(st.st_mode)) {
      char target[4096];
      const ssize_t size = readlink(full.c_str(), target, sizeof(target));
      content.assign(target, static_cast<size_t>(std::max<ssize_t>(size, 0)));
    }
    (*out)[prefix + name] = Describe(st.st_mode & S_IFMT, st.st_mode & 07777, *id, content);
    if (S_ISDIR(st.st_mode)) ListDiskBelow(full, prefix + name + "/", out);
  }
}

}  // namespace

Listing ListDisk(const std::string& root_path) {
  Listing listing;
  ListDiskBelow(root_path, "", &listing);
  return listing;
}

Model::Model(uint64_t seed) : random_(seed) {
  ModelObject& root = objects_[kRootFileId];
  root.id = kRootFileId;
  root.type = S_IFDIR;
  root.identified = true;
}

ModelObject& Model::Add(uint32_t type, uint32_t mode) {
  ModelObject& object = objects_[next_id_];
  object.id = next_id_++;
  object.type = type;
  object.mode = mode;
  return object;
}

void Model::Bind(FileId dir, const std::string& name, FileId id) {
  SALIUS_CHECK(objects_[dir].children.emplace(name, id).second);
  ++objects_[id].links;
}

void Model::Unbind(FileId dir, const std::string& name) {
  const auto at = objects_[dir].children.find(name);
  --objects_[at->second].links;
  objects_[dir].children.erase(at);
}

void Model::MakeOldTree(const std::string& root_path) {
  std::map<FileId, std::string> paths{{kRootFileId, root_path}};
  const uint64_t count = random_.Below(14);
  for (uint64_t i = 0; i < count; ++i) {
    const FileId dir = RandomDir();
    const std::string name = FreeName(dir);
    if (name.empty()) continue;
    const std::string path = paths[dir] + "/" + name;
    const bool is_dir = random_.Chance(0.4);
    ModelObject& object = Add(is_dir ? S_IFDIR : S_IFREG, is_dir ? 0755 : 0644);
    object.old = true;
    if (is_dir) {
      SALIUS_CHECK(mkdir(path.c_str(), 0755) == 0);
    } else {
      object.content = std::string(random_.Below(40), static_cast<char>('A' + i));
      WriteFile(path, object.content);
    }
    paths[object.id] = path;
    const UniqueFd fd = MustOpen(path, O_PATH | O_NOFOLLOW);
    SALIUS_CHECK_OK(fs::Chmod(fd.get(), object.mode));
    handles_[object.id] = *HandleOf(fd.get(), "", AT_EMPTY_PATH);
    if (random_.Chance(0.6)) {
      object.identified = true;
      SALIUS_CHECK_OK(WriteFileId(fd.get(), object.id));
    }
    Bind(dir, name, object.id);
  }
}

void Model::Ensure(FileId id) {
  ModelObject& object = objects_[id];
  if (object.identified) return;
  object.identified = true;
  stamper_.Adopt(id, "nowhere", handles_[id]);
}

FileId Model::RandomDir() {
  std::vector<FileId> dirs;
  for (const auto& [id, object] : objects_) {
    if (object.type == S_IFDIR && Alive(id)) dirs.push_back(id);
  }
  return dirs[random_.Below(dirs.size())];
}

FileId Model::RandomFile() {
  std::vector<FileId> files;
  for (const auto& [id, object] : objects_) {
    if (object.type == S_IFREG && Alive(id)) files.push_back(id);
  }
  return files.empty() ? kNoFileId : files[random_.Below(files.size())];
}

bool Model::RandomPlace(Place* place) {
  std::vector<Place> places;
  for (const auto& [id, object] : objects_) {
    if (!Alive(id)) continue;
    for (const auto& [name, child] : object.children) places.push_back({id, name});
  }
  if (places.empty()) return false;
  *place = places[random_.Below(places.size())];
  return true;
}

std::string Model::RandomName() {
  return std::string(1, static_cast<char>('a' + random_.Below(5)));
}

std::string Model::FreeName(FileId dir) {
  for (int i = 0; i < 5; ++i) {
    const std::string name = RandomName();
    if (!objects_[dir].children.contains(name)) return name;
  }
  return "";
}

bool Model::IsBelow(FileId dir, FileId ancestor) const {
  if (dir == ancestor) return true;
  for (const auto& [name, child] : objects_.at(ancestor).children) {
    if (objects_.at(child).type == S_IFDIR && IsBelow(dir, child)) return true;
  }
  return false;
}

void Model::Run(int count) {
  for (int i = 0; i < count; ++i) {
    switch (random_.Below(12)) {
      case 0:
      case 1:
      case 2:
        Create();
        break;
      case 3:
        CreateNameless();
        break;
      case 4:
        Link();
        break;
      case 5:
        Remove();
        break;
      case 6:
      case 7:
        Rename();
        break;
      case 8:
        Exchange();
        break;
      case 9:
        Data();
        break;
      case 10:
        Chmod();
        break;
      default:
        random_.Chance(0.5) ? CancelledRename() : Data();
        break;
    }
  }
}

void Model::Create() {
  const FileId dir = RandomDir();
  const std::string name = FreeName(dir);
  if (name.empty()) return;
  Ensure(dir);
  const uint64_t kind = random_.Below(10);
  const uint32_t type = kind < 5 ? S_IFREG : kind < 9 ? S_IFDIR : S_IFLNK;
  ModelObject& object = Add(type, S_ISDIR(type) ? 0750 : S_ISLNK(type) ? 0777 : 0640);
  object.identified = true;
  if (S_ISLNK(type)) object.content = "target-of-" + name;
  const FileId id = object.id;
  stamper_.Create(id, dir, name, type | object.mode);
  Bind(dir, name, id);
}

void Model::CreateNameless() {
  ModelObject& object = Add(S_IFREG, 0600);
  object.identified = true;
  const FileId id = object.id;
  stamper_.Create(id, kNoFileId, "", S_IFREG | 0600);
  object.content = "nameless";
  stamper_.Write(id, 0, object.content);
  const FileId dir = RandomDir();
  const std::string name = FreeName(dir);
  if (name.empty() || random_.Chance(0.4)) return;
  Ensure(dir);
  stamper_.Link(id, dir, name);
  Bind(dir, name, id);
}

void Model::Link() {
  const FileId id = RandomFile();
  const FileId dir = RandomDir();
  const std::string name = FreeName(dir);
  if (id == kNoFileId || name.empty()) return;
  Ensure(dir);
  Ensure(id);
  stamper_.Link(id, dir, name);
  Bind(dir, name, id);
}

bool Model::SaysOnly(FileId id) {
  if (id == kNoFileId || objects_[id].type == S_IFDIR || objects_[id].links != 1) return false;
  return random_.Chance(0.7);  // records of earlier versions lack it
}

void Model::Remove() {
  Place place;
  if (!RandomPlace(&place)) return;
  const FileId id = objects_[place.dir].children[place.name];
  const bool is_dir = objects_[id].type == S_IFDIR;
  if (is_dir && !objects_[id].children.empty()) return;
  Ensure(place.dir);
  Ensure(id);
  stamper_.Unlink(id, place.dir, place.name, is_dir, SaysOnly(id));
  Unbind(place.dir, place.name);
}

void Model::Rename() {
  Place from;
  if (!RandomPlace(&from)) return;
  const FileId id = objects_[from.dir].children[from.name];
  const bool is_dir = objects_[id].type == S_IFDIR;
  const FileId to_dir = RandomDir();
  const std::string to_name = RandomName();
  if (is_dir && IsBelow(to_dir, id)) return;
  FileId other = kNoFileId;
  if (const auto at = objects_[to_dir].children.find(to_name);
      at != objects_[to_dir].children.end()) {
    other = at->second;
    const ModelObject& there = objects_[other];
    if (other == id || is_dir != (there.type == S_IFDIR) || !there.children.empty()) return;
  }
  Ensure(from.dir);
  Ensure(to_dir);
  Ensure(id);
  if (other != kNoFileId) Ensure(other);
  if (random_.Chance(0.3)) {
    ModelObject& whiteout = Add(S_IFCHR, 0);
    whiteout.identified = true;
    const FileId left = whiteout.id;
    stamper_.RenameWithWhiteout(id, from.dir, from.name, to_dir, to_name, other, left,
                                SaysOnly(other));
    if (other != kNoFileId) Unbind(to_dir, to_name);
    Bind(to_dir, to_name, id);
    Unbind(from.dir, from.name);
    Bind(from.dir, from.name, left);
    return;
  }
  stamper_.Rename(id, from.dir, from.name, to_dir, to_name, other, 0, SaysOnly(other));
  if (other != kNoFileId) Unbind(to_dir, to_name);
  Bind(to_dir, to_name, id);
  Unbind(from.dir, from.name);
}

void Model::Exchange() {
  Place a, b;
  if (!RandomPlace(&a) || !RandomPlace(&b)) return;
  const FileId first = objects_[a.dir].children[a.name];
  const FileId second = objects_[b.dir].children[b.name];
  if (first == second) return;
  if (objects_[first].type == S_IFDIR && IsBelow(b.dir, first)) return;
  if (objects_[second].type == S_IFDIR && IsBelow(a.dir, second)) return;
  for (const FileId id : {a.dir, b.dir, first, second}) Ensure(id);
  stamper_.Rename(first, a.dir, a.name, b.dir, b.name, second, RENAME_EXCHANGE);
  objects_[a.dir].children[a.name] = second;
  objects_[b.dir].children[b.name] = first;
}

void Model::Data() {
  const FileId id = RandomFile();
  if (id == kNoFileId) return;
  Ensure(id);
  std::string& content = objects_[id].content;
  const uint64_t offset = random_.Below(60);
  if (random_.Chance(0.3)) {
    stamper_.Truncate(id, offset);
    content.resize(offset, '\0');
    return;
  }
  const std::string data(1 + random_.Below(30), static_cast<char>('0' + stamper_.last() % 10));
  stamper_.Write(id, offset, data);
  if (content.size() < offset + data.size()) content.resize(offset + data.size(), '\0');
  content.replace(offset, data.size(), data);
}

void Model::Chmod() {
  const FileId id = random_.Chance(0.5) ? RandomFile() : RandomDir();
  if (id == kNoFileId || id == kRootFileId) return;
  Ensure(id);
  objects_[id].mode = 0600 | static_cast<uint32_t>(random_.Below(0100));
  stamper_.Chmod(id, objects_[id].mode);
}

void Model::CancelledRename() {
  Place from;
  if (!RandomPlace(&from)) return;
  const FileId id = objects_[from.dir].children[from.name];
  const std::string free_name = FreeName(kRootFileId);
  if (free_name.empty()) return;
  Ensure(from.dir);
  Ensure(id);
  stamper_.Rename(id, from.dir, from.name, kRootFileId, free_name);
  stamper_.Cancel(stamper_.last());
}

Listing Model::List() const {
  Listing listing;
  ListBelow(kRootFileId, "", &listing);
  return listing;
}

void Model::ListBelow(FileId dir, const std::string& prefix, Listing* out) const {
  for (const auto& [name, id] : objects_.at(dir).children) {
    const ModelObject& object = objects_.at(id);
    (*out)[prefix + name] =
        Describe(object.type, object.mode, object.identified ? id : kNoFileId, object.content);
    if (object.type == S_IFDIR) ListBelow(id, prefix + name + "/", out);
  }
}

Disk::Disk(const std::string& root_path, const Model& model)
    : model_(model),
      root_(MustOpen(root_path)),
      tmp_(MustOpen(root_path + "/.salius/tmp")),
      open_(MustOpen(root_path + "/.salius/open")) {
  for (const auto& [id, handle] : model.handles()) {
    fds_[id] = *OpenByHandle(root_.get(), handle, O_PATH);
  }
}

int Disk::FdOf(FileId id) const {
  if (id == kRootFileId) return root_.get();
  const auto at = fds_.find(id);
  return at == fds_.end() ? -1 : at->second.get();
}

FileId Disk::IdAt(int dirfd, const std::string& name) const {
  const auto fd = OpenAt(dirfd, name, O_PATH | O_NOFOLLOW);
  if (!fd.ok()) return kNoFileId;
  const struct stat st = *fs::StatAt(fd->get(), "");
  for (const auto& [id, known] : fds_) {
    if (fs::StatAt(known.get(), "")->st_ino == st.st_ino) return id;
  }
  return kNoFileId;
}

bool Disk::MayLoseName(FileId id) const {
  const ModelObject& object = model_.objects().at(id);
  if (!object.old || !model_.Alive(id)) return true;
  const struct stat st = *fs::StatAt(FdOf(id), "");
  return object.type != S_IFDIR && st.st_nlink > 1;
}

void Disk::Perform(const RecordView& record) {
  const RecordHeader& header = record.header;
  const int fd = header.file_id != kNoFileId ? FdOf(header.file_id) : -1;
  switch (header.op) {
    case Op::kCreate: {
      const CreateBody body = *CreateBody::Decode(record.body());
      const bool nameless = body.dir == kNoFileId;
      const int dir = nameless ? open_.get() : FdOf(body.dir);
      if (dir < 0 || fd >= 0) return;
      const std::string made = IdName(header.file_id);
      auto object = MakeObject(tmp_.get(), made, header.file_id, body);
      SALIUS_CHECK_OK(object);
      const std::string& name = nameless ? made : body.name;
      if (renameat2(tmp_.get(), made.c_str(), dir, name.c_str(), RENAME_NOREPLACE) != 0) return;
      fds_[header.file_id] = *std::move(object);
      return;
    }
    case Op::kLink: {
      const NameBody body = *NameBody::Decode(record.body());
      const int dir = FdOf(body.dir);
      if (fd < 0 || dir < 0) return;
      (void)!linkat(fd, "", dir, body.name.c_str(), AT_EMPTY_PATH);
      return;
    }
    case Op::kUnlink: {
      const NameBody body = *NameBody::Decode(record.body());
      const int dir = FdOf(body.dir);
      if (dir < 0 || IdAt(dir, body.name) != header.file_id || !MayLoseName(header.file_id)) return;
      (void)!unlinkat(dir, body.name.c_str(), header.arg0 == 1 ? AT_REMOVEDIR : 0);
      return;
    }
    case Op::kRename: {
      const RenameBody body = *RenameBody::Decode(record.body());
      const int from = FdOf(body.from_dir), to = FdOf(body.to_dir);
      if (from < 0 || to < 0 || IdAt(from, body.from_name) != header.file_id) return;
      const FileId there = IdAt(to, body.to_name);
      if (there != body.other) return;
      const bool exchange = (body.flags & RENAME_EXCHANGE) != 0;
      if (there != kNoFileId && !exchange && !MayLoseName(there)) return;
      if (renameat2(from, body.from_name.c_str(), to, body.to_name.c_str(), body.flags) != 0 ||
          body.whiteout == kNoFileId) {
        return;
      }
      // Or it was cut off here.
      if (header.seq % 3 == 0) return;
      UniqueFd made = MustOpen(
          absl::StrFormat("/proc/self/fd/%d/%s", from, body.from_name), O_PATH | O_NOFOLLOW);
      SALIUS_CHECK_OK(fs::Chown(made.get(), body.whiteout_uid, body.whiteout_gid));
      SALIUS_CHECK_OK(WriteFileId(made.get(), body.whiteout));
      fds_[body.whiteout] = std::move(made);
      return;
    }
    case Op::kAdopt:
      if (fd >= 0) SALIUS_CHECK_OK(WriteFileId(fd, header.file_id));
      return;
    case Op::kWrite:
    case Op::kTruncate: {
      if (fd < 0) return;
      const auto data = Reopen(fd, O_RDWR);
      if (data.ok()) SALIUS_CHECK_OK(ApplyData(data->get(), header, record.body()));
      return;
    }
    case Op::kSetAttr:
      if (fd >= 0) SALIUS_CHECK_OK(ApplyAttr(fd, header, record.body()));
      return;
    default:
      return;
  }
}

}  // namespace salius::recovery

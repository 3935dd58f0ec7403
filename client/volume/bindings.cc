#include "client/volume/bindings.h"

#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/check.h"

namespace salius {
namespace {

// Returns what malloc(3) takes for a block: 8 bytes more, in units of 16.
constexpr size_t BlockBytes(size_t bytes) { return (bytes + 8 + 15) / 16 * 16; }

// Returns the memory of a table: a slot and a control byte for each place in it, and a group of
// control bytes more.
template <typename Map>
size_t TableBytes(const Map& map) {
  constexpr size_t kMore = 24;
  if (map.empty()) return 0;
  return BlockBytes(map.capacity() * (sizeof(typename Map::value_type) + 1) + kMore);
}

// Gives memory back when most of a table is unused. An erase alone gives none back.
template <typename Map>
void Shrink(Map& map) {
  constexpr size_t kSmall = 32;
  if (map.empty() || (map.capacity() > kSmall && map.size() < map.capacity() / 8)) map.rehash(0);
}

template <typename Sorted, typename NameOf>
bool HasName(const Sorted& sorted, std::string_view name, NameOf name_of) {
  const auto at = std::lower_bound(
      sorted.begin(), sorted.end(), name,
      [&](const auto& item, std::string_view wanted) { return name_of(item) < wanted; });
  return at != sorted.end() && name_of(*at) == name;
}

}  // namespace

bool Bindings::Snapshot::Covers(std::string_view name) const {
  return HasName(added, name, [](const Added& item) { return std::string_view(item.name); }) ||
         HasName(removed, name, [](const std::string& item) { return std::string_view(item); });
}

size_t Bindings::Snapshot::bytes() const {
  size_t bytes = sizeof(Snapshot) + added.capacity() * sizeof(Added) +
                 removed.capacity() * sizeof(std::string);
  for (const Added& item : added) bytes += item.name.capacity();
  for (const std::string& name : removed) bytes += name.capacity();
  return bytes;
}

void Bindings::Bind(Seq seq, Place place, const Object& object) { Enter(seq, place, object); }

void Bindings::Remove(Seq seq, Place place) { Enter(seq, place, std::nullopt); }

void Bindings::Rename(Seq seq, Place from, Place to, const Object& moved,
                      const std::optional<Object>& left) {
  SALIUS_CHECK(from != to, "a name is renamed to itself");
  Enter(seq, from, left);
  Enter(seq, to, moved);
}

void Bindings::Enter(Seq seq, Place place, const std::optional<Object>& object) {
  if (seq <= applied_) return;  // the disk has it
  const auto dir = dirs_.find(place.dir);
  if (dir != dirs_.end()) {
    const auto old = dir->second.names.find(place.name);
    if (old != dir->second.names.end()) {
      SALIUS_CHECK(old->second->seq < seq, "names of one directory are entered in order");
      Drop(old->second);
    }
  }
  const auto entry = InsertInOrder({seq, place.dir, std::string(place.name), object});
  entry_bytes_ += BytesOf(*entry);
  Directory& directory = dirs_[place.dir];
  name_map_bytes_ -= TableBytes(directory.names);
  directory.names.emplace(entry->name, entry);
  name_map_bytes_ += TableBytes(directory.names);
  if (!object.has_value()) return;
  ++directory.added;
  if (S_ISDIR(object->type)) parents_[object->key] = {place.dir, seq};
}

Bindings::EntryList::iterator Bindings::InsertInOrder(Entry entry) {
  auto next = entries_.end();
  while (next != entries_.begin() && std::prev(next)->seq > entry.seq) --next;
  return entries_.insert(next, std::move(entry));
}

void Bindings::Drop(EntryList::iterator entry) {
  const auto dir = dirs_.find(entry->dir);
  SALIUS_CHECK(dir != dirs_.end());
  Directory& directory = dir->second;
  if (entry->object.has_value()) {
    --directory.added;
    const auto parent = parents_.find(entry->object->key);
    // A later entry may lead to the same directory.
    if (parent != parents_.end() && parent->second.seq == entry->seq) {
      parents_.erase(parent);
      Shrink(parents_);
    }
  }
  name_map_bytes_ -= TableBytes(directory.names);
  directory.names.erase(entry->name);
  Shrink(directory.names);
  name_map_bytes_ += TableBytes(directory.names);
  if (directory.names.empty()) {
    dirs_.erase(dir);
    Shrink(dirs_);
  }
  entry_bytes_ -= BytesOf(*entry);
  entries_.erase(entry);
}

void Bindings::NoteApplied(Seq seq) {
  applied_ = std::max(applied_, seq);
  while (!entries_.empty() && entries_.front().seq <= applied_) Drop(entries_.begin());
}

std::optional<Bindings::Binding> Bindings::Find(Place place) const {
  const auto dir = dirs_.find(place.dir);
  if (dir == dirs_.end()) return std::nullopt;
  const auto entry = dir->second.names.find(place.name);
  if (entry == dir->second.names.end()) return std::nullopt;
  return Binding{entry->second->object, entry->second->seq};
}

bool Bindings::HasAdditions(Key dir) const {
  const auto found = dirs_.find(dir);
  return found != dirs_.end() && found->second.added > 0;
}

Bindings::Snapshot Bindings::SnapshotOf(Key dir) const {
  Snapshot snapshot;
  const auto found = dirs_.find(dir);
  if (found == dirs_.end()) return snapshot;
  const Directory& directory = found->second;
  snapshot.added.reserve(directory.added);
  snapshot.removed.reserve(directory.names.size() - directory.added);
  for (const auto& [name, entry] : directory.names) {
    if (entry->object.has_value()) {
      snapshot.added.push_back({std::string(name), *entry->object});
    } else {
      snapshot.removed.emplace_back(name);
    }
  }
  std::sort(snapshot.added.begin(), snapshot.added.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  std::sort(snapshot.removed.begin(), snapshot.removed.end());
  return snapshot;
}

std::optional<Bindings::Key> Bindings::ParentOf(Key dir) const {
  const auto parent = parents_.find(dir);
  if (parent == parents_.end()) return std::nullopt;
  return parent->second.dir;
}

size_t Bindings::BytesOf(const Entry& entry) {
  constexpr size_t kLinks = 2 * sizeof(void*);  // of the list
  static const size_t in_place = std::string().capacity();
  const size_t on_heap = entry.name.capacity();
  return BlockBytes(sizeof(Entry) + kLinks) + (on_heap > in_place ? BlockBytes(on_heap + 1) : 0);
}

size_t Bindings::bytes() const {
  return entry_bytes_ + name_map_bytes_ + TableBytes(dirs_) + TableBytes(parents_);
}

}  // namespace salius

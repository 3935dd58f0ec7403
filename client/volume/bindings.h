// Names whose records are issued but not applied: what they name now, laid over the backing
// directories. A reader asks for a name here first, and asks the disk when there is no entry.
//
// An entry says what one name of one directory is after the newest record that changed it: an
// object, or removed. It is entered after its record is issued, and goes after that record is
// applied. The disk changes before the entry goes, so a reader that asks here and then the disk
// misses no state. When a later record changes the same name, its entry takes the place of the
// earlier one, and the apply of the earlier record leaves it.
//
// Directories and objects are named by a key (Node::generation). The changes of one directory are
// entered in the order of their seqs, because its `names` lock is held meanwhile. Changes of
// different directories may be entered in any order.
//
// pure: no thread, lock, socket or clock. The owner locks.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"

namespace salius {

class Bindings {
 public:
  using Key = uint64_t;  // Node::generation; 0 is the root

  // An object that a name leads to, with all that a listing shows of it.
  struct Object {
    Key key = 0;
    ino_t ino = 0;
    uint32_t type = 0;  // S_IFMT bits
    bool operator==(const Object&) const = default;
  };
  // A name in a directory.
  struct Place {
    Key dir = 0;
    std::string_view name;
    bool operator==(const Place&) const = default;
  };
  // The target of a name; no object: the name is removed.
  struct Binding {
    std::optional<Object> object;
    Seq seq = 0;  // the record that made it so
  };
  // The entries of one directory at one moment. A listing that begins then shows the disk's entries
  // that are not covered, and then the added ones, however many records are applied meanwhile. So
  // it shows each name that exists throughout once.
  struct Snapshot {
    struct Added {
      std::string name;
      Object object;
    };
    std::vector<Added> added;          // by name
    std::vector<std::string> removed;  // by name
    // Returns whether the disk's entry of this name is left out.
    bool Covers(std::string_view name) const;
    // Returns the memory in bytes that it occupies, estimated.
    size_t bytes() const;
  };

  Bindings() = default;
  Bindings(const Bindings&) = delete;
  Bindings& operator=(const Bindings&) = delete;

  // ---- changes. Each enters what record `seq` does to names, unless that record is applied already.
  // `place` leads to `object` now (create, mkdir, symlink, mknod, link).
  void Bind(Seq seq, Place place, const Object& object);
  // `place` is removed (unlink, rmdir).
  void Remove(Seq seq, Place place);
  // `to` leads to `moved` now, and the object that it led to before has lost that name. `left`: the
  // object to which `from` leads afterwards: the other one of an exchange, or a whiteout; none:
  // `from` is removed.
  // `from` and `to` differ.
  void Rename(Seq seq, Place from, Place to, const Object& moved,
              const std::optional<Object>& left = std::nullopt);

  // Drops the entries of the records up to `seq`, which are all applied.
  void NoteApplied(Seq seq);

  // ---- questions
  // Returns what the name is; nothing when no record of it is pending, and the disk is right.
  std::optional<Binding> Find(Place place) const;
  // Returns whether a name of the directory is pending. Costs one look into a table.
  bool Touches(Key dir) const { return dirs_.contains(dir); }
  // Returns whether a name of the directory leads to an object by a pending record. A directory is
  // empty when this is false and each name on the disk is covered by an entry (Find).
  bool HasAdditions(Key dir) const;
  Snapshot SnapshotOf(Key dir) const;
  // Returns the directory in which a directory is; nothing when the disk is right, or when the
  // directory is removed.
  std::optional<Key> ParentOf(Key dir) const;

  bool empty() const { return entries_.empty(); }
  size_t entries() const { return entries_.size(); }
  // Returns the memory in bytes that the entries occupy, estimated; 0 without entries.
  size_t bytes() const;

 private:
  struct Entry {
    Seq seq;
    Key dir;
    std::string name;
    std::optional<Object> object;
  };
  using EntryList = std::list<Entry>;
  using NameMap = absl::flat_hash_map<std::string_view, EntryList::iterator>;  // views into entries
  struct Directory {
    NameMap names;
    size_t added = 0;  // entries with an object
  };
  struct Parent {
    Key dir = 0;
    Seq seq = 0;  // of the entry that says so
  };

  void Enter(Seq seq, Place place, const std::optional<Object>& object);
  EntryList::iterator InsertInOrder(Entry entry);
  void Drop(EntryList::iterator entry);
  static size_t BytesOf(const Entry& entry);

  Seq applied_ = 0;    // every record up to this one is applied
  EntryList entries_;  // by seq
  // Entries of the directories that have any.
  absl::flat_hash_map<Key, Directory> dirs_;
  absl::flat_hash_map<Key, Parent> parents_;  // of the directories that entries lead to
  size_t entry_bytes_ = 0;                    // sum of BytesOf
  size_t name_map_bytes_ = 0;                 // of all `Directory::names`
};

}  // namespace salius

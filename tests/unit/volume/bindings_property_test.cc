// Bindings over a model disk against a model tree (RapidCheck: a failure prints the smallest case
// that it finds). Random operations change the tree at once and leave a record. The records are
// applied to the disk in order at random times. After each step the overlay with the disk below it
// must show the tree.
#include "client/volume/bindings.h"

#include <sys/stat.h>

#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
// After gtest, which it needs.
#include <rapidcheck/gtest.h>

namespace salius {
namespace {

using Key = Bindings::Key;
using Object = Bindings::Object;

constexpr Key kRoot = 0;

// Returns a number below `bound`, each equally often. (RapidCheck's early cases use only the lower
// part of a range.)
size_t Below(size_t bound) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<size_t>(0, bound));
}

// Directories and their names.
using Tree = std::map<Key, std::map<std::string, Object>>;

struct Change {
  Key dir = 0;
  std::string name;
  std::optional<Object> object;
};

// The effect of one operation, as a record of the log gives it.
struct Record {
  Seq seq = 0;
  std::vector<Change> changes;
};

void Perform(const Record& record, Tree& tree) {
  for (const Change& change : record.changes) {
    if (change.object.has_value()) {
      tree[change.dir][change.name] = *change.object;
    } else {
      tree[change.dir].erase(change.name);
    }
  }
}

// A directory being listed as a front does it: the disk's entries one after another, less those
// that the snapshot covers, then those that it added.
struct Listing {
  Key dir = 0;
  Bindings::Snapshot snapshot;
  std::string disk_position;  // the name that the disk gave last; names are not empty
  bool disk_done = false;
  size_t next_added = 0;
  bool done = false;
  std::vector<std::pair<std::string, Key>> seen;
  std::set<std::string> throughout;               // names that have existed since it began
  std::set<std::pair<std::string, Key>> existed;  // at any moment since
};

class World {
 public:
  World() { tree_[kRoot] = disk_[kRoot] = {}; }

  void Step() {
    switch (Below(12)) {
      case 0:
      case 1:
        Create(S_IFREG);
        break;
      case 2:
        Create(S_IFDIR);
        break;
      case 3:
        Link();
        break;
      case 4:
        Unlink();
        break;
      case 5:
        RemoveDir();
        break;
      case 6:
      case 7:
      case 8:
        Rename();
        break;
      case 9:
        ApplySome(Below(4));
        break;
      case 10:
        BeginListing();
        break;
      default:
        ContinueListings();
        break;
    }
    NoteTree();
    Check();
  }

  void Finish() {
    while (!listings_.empty()) {
      ApplySome(1);
      ContinueListings();
      Check();
    }
    ApplySome(pending_.size());
    Check();
    RC_ASSERT(overlay_.empty());
    RC_ASSERT(overlay_.entries() == 0u);
    RC_ASSERT(overlay_.bytes() == 0u);
  }

 private:
  static std::string AnyName() { return std::string(1, static_cast<char>('a' + Below(5))); }

  Key AnyDir() const {
    auto dir = tree_.begin();
    std::advance(dir, Below(tree_.size()));
    return dir->first;
  }

  const Object* Get(Key dir, const std::string& name) const {
    const auto found = tree_.at(dir).find(name);
    return found == tree_.at(dir).end() ? nullptr : &found->second;
  }

  // Returns whether `dir` is `above` or below it.
  bool IsBelow(Key dir, Key above) const {
    for (; dir != above; dir = parents_.at(dir)) {
      if (dir == kRoot) return false;
    }
    return true;
  }

  // Issues a record and enters its names; at times only after the record was applied.
  template <typename EnterNames>
  void Issue(std::vector<Change> changes, const EnterNames& enter) {
    pending_.push_back({++issued_, std::move(changes)});
    Perform(pending_.back(), tree_);
    if (Below(10) == 0) ApplySome(pending_.size());
    enter(issued_);
  }

  void ApplySome(size_t count) {
    for (; count > 0 && !pending_.empty(); --count) {
      Perform(pending_.front(), disk_);
      CheckNames();  // the disk has it, the overlay still too
      overlay_.NoteApplied(pending_.front().seq);
      pending_.pop_front();
    }
  }

  void Create(uint32_t type) {
    const Key dir = AnyDir();
    const std::string name = AnyName();
    if (Get(dir, name) != nullptr) return;
    const Object made = NewObject(type);
    if (S_ISDIR(type)) {
      tree_[made.key] = disk_[made.key] = {};  // the object comes before its name
      parents_[made.key] = dir;
    }
    Issue({{dir, name, made}}, [&](Seq seq) { overlay_.Bind(seq, {dir, name}, made); });
  }

  void Link() {
    const Key from = AnyDir(), dir = AnyDir();
    const std::string name = AnyName();
    const Object* const linked = Get(from, AnyName());
    if (linked == nullptr || S_ISDIR(linked->type) || Get(dir, name) != nullptr) return;
    const Object object = *linked;
    Issue({{dir, name, object}}, [&](Seq seq) { overlay_.Bind(seq, {dir, name}, object); });
  }

  void Unlink() {
    const Key dir = AnyDir();
    const std::string name = AnyName();
    const Object* const victim = Get(dir, name);
    if (victim == nullptr || S_ISDIR(victim->type)) return;
    Issue({{dir, name, std::nullopt}}, [&](Seq seq) { overlay_.Remove(seq, {dir, name}); });
  }

  void RemoveDir() {
    const Key dir = AnyDir();
    const std::string name = AnyName();
    const Object* const found = Get(dir, name);
    if (found == nullptr || !S_ISDIR(found->type) || !tree_.at(found->key).empty()) return;
    const Object victim = *found;
    Issue({{dir, name, std::nullopt}}, [&](Seq seq) { overlay_.Remove(seq, {dir, name}); });
    Forget(victim);
  }

  void Rename() {
    const Key from_dir = AnyDir(), to_dir = AnyDir();
    const std::string from = AnyName(), to = AnyName();
    const bool exchange = Below(3) == 0;
    const bool whiteout = !exchange && Below(3) == 0;
    const bool noreplace = !exchange && Below(3) == 0;
    const Object* const source = Get(from_dir, from);
    const Object* const target = Get(to_dir, to);
    if (source == nullptr || (exchange && target == nullptr)) return;
    if (target != nullptr && (noreplace || target->key == source->key)) return;
    const Object moved = *source;
    const std::optional<Object> other = target == nullptr ? std::nullopt : std::optional(*target);
    if (S_ISDIR(moved.type) && IsBelow(to_dir, moved.key)) return;
    if (other.has_value() && S_ISDIR(other->type)) {
      if (exchange ? IsBelow(from_dir, other->key)
                   : !S_ISDIR(moved.type) || !tree_.at(other->key).empty()) {
        return;
      }
    } else if (other.has_value() && !exchange && S_ISDIR(moved.type)) {
      return;
    }
    std::optional<Object> left;
    if (exchange) left = other;
    if (whiteout) left = NewObject(S_IFCHR);
    Issue({{from_dir, from, left}, {to_dir, to, moved}}, [&](Seq seq) {
      overlay_.Rename(seq, {from_dir, from}, {to_dir, to}, moved, left);
    });
    if (S_ISDIR(moved.type)) parents_[moved.key] = to_dir;
    if (exchange && S_ISDIR(other->type)) parents_[other->key] = from_dir;
    if (!exchange && other.has_value()) Forget(*other);
  }

  Object NewObject(uint32_t type) {
    ++made_;
    return {made_, 1000 + made_, type};
  }

  void Forget(const Object& gone) {
    if (!S_ISDIR(gone.type)) return;
    tree_.erase(gone.key);
    parents_.erase(gone.key);
  }

  void BeginListing() {
    Listing listing;
    listing.dir = AnyDir();
    listing.snapshot = overlay_.SnapshotOf(listing.dir);
    for (const auto& [name, object] : tree_.at(listing.dir)) listing.throughout.insert(name);
    listings_.push_back(std::move(listing));
  }

  void ContinueListings() {
    for (size_t i = 0; i < listings_.size();) {
      Listing& listing = listings_[i];
      for (size_t steps = 1 + Below(3); steps > 0 && !listing.done; --steps) Next(listing);
      if (listing.done) {
        CheckListing(listing);
        listings_.erase(listings_.begin() + static_cast<ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  }

  void Next(Listing& listing) {
    if (!listing.disk_done) {
      const auto& names = disk_.at(listing.dir);
      const auto next = names.upper_bound(listing.disk_position);
      if (next == names.end()) {
        listing.disk_done = true;
        return;
      }
      listing.disk_position = next->first;
      if (listing.snapshot.Covers(next->first)) return;
      listing.seen.emplace_back(next->first, next->second.key);
    } else if (listing.next_added < listing.snapshot.added.size()) {
      const auto& added = listing.snapshot.added[listing.next_added++];
      listing.seen.emplace_back(added.name, added.object.key);
    } else {
      listing.done = true;
    }
  }

  // Notes for the listings under way which names exist now.
  void NoteTree() {
    for (Listing& listing : listings_) {
      const auto dir = tree_.find(listing.dir);
      if (dir == tree_.end()) {
        listing.throughout.clear();
        continue;
      }
      std::erase_if(listing.throughout,
                    [&](const std::string& name) { return !dir->second.contains(name); });
      for (const auto& [name, object] : dir->second) listing.existed.emplace(name, object.key);
    }
  }

  static void CheckListing(const Listing& listing) {
    std::multiset<std::string> names;
    for (const auto& entry : listing.seen) {
      RC_ASSERT(listing.existed.contains(entry));
      names.insert(entry.first);
      RC_ASSERT(names.count(entry.first) == 1u);
    }
    for (const std::string& name : listing.throughout) RC_ASSERT(names.contains(name));
  }

  // ---- what a front makes of the overlay and the disk
  std::optional<Object> Lookup(Key dir, const std::string& name) const {
    if (overlay_.Touches(dir)) {
      const std::optional<Bindings::Binding> found = overlay_.Find({dir, name});
      if (found.has_value()) return found->object;
    }
    const auto on_disk = disk_.at(dir).find(name);
    return on_disk == disk_.at(dir).end() ? std::nullopt : std::optional(on_disk->second);
  }

  bool IsEmpty(Key dir) const {
    if (overlay_.HasAdditions(dir)) return false;
    for (const auto& [name, object] : disk_.at(dir)) {
      if (!overlay_.Find({dir, name}).has_value()) return false;
    }
    return true;
  }

  Key ParentOf(Key dir) const {
    const std::optional<Key> pending = overlay_.ParentOf(dir);
    if (pending.has_value()) return *pending;
    for (const auto& [parent, names] : disk_) {
      for (const auto& [name, object] : names) {
        if (object.key == dir) return parent;
      }
    }
    RC_FAIL("a directory without a parent");
  }

  // Checks each name, unless a record is issued whose names may not be entered yet.
  void CheckNames() const {
    if (entered_ != issued_) return;
    for (const auto& [dir, names] : tree_) {
      for (char letter = 'a'; letter < 'f'; ++letter) {
        const std::string name(1, letter);
        const auto expected = names.find(name);
        const std::optional<Object> found = Lookup(dir, name);
        RC_ASSERT(found.has_value() == (expected != names.end()));
        if (found.has_value()) RC_ASSERT(*found == expected->second);
      }
    }
  }

  void Check() {
    entered_ = issued_;
    CheckNames();
    for (const auto& [dir, names] : tree_) {
      RC_ASSERT(IsEmpty(dir) == names.empty());
      if (dir != kRoot) RC_ASSERT(ParentOf(dir) == parents_.at(dir));
    }
    std::set<std::pair<Key, std::string>> places;
    std::set<Key> dirs;
    for (const Record& record : pending_) {
      for (const Change& change : record.changes) {
        places.emplace(change.dir, change.name);
        dirs.insert(change.dir);
      }
    }
    RC_ASSERT(overlay_.entries() == places.size());
    RC_ASSERT(overlay_.empty() == places.empty());
    RC_ASSERT((overlay_.bytes() == 0u) == places.empty());
    for (const auto& [dir, names] : disk_) RC_ASSERT(overlay_.Touches(dir) == dirs.contains(dir));
  }

  Tree tree_;  // as callers see it; without removed directories
  Tree disk_;
  std::map<Key, Key> parents_;  // in `tree_`
  Bindings overlay_;
  std::deque<Record> pending_;
  std::vector<Listing> listings_;
  Seq issued_ = 0;
  Seq entered_ = 0;
  Key made_ = 0;
};

RC_GTEST_PROP(BindingsProperty, OverlayShowsTheTreeAtAnyAppliedMark, ()) {
  World world;
  for (size_t steps = 1 + Below(200); steps > 0; --steps) world.Step();
  world.Finish();
}

}  // namespace
}  // namespace salius

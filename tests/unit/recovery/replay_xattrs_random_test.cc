// Random extended attributes on an ext4 inode that has little room for them. They are replayed onto
// disks that hold any part of them, at least the part that an fsync put there. The result is always
// that of the session.
#include <array>
#include <map>
#include <string>
#include <vector>

#include "common/random.h"
#include "storage/posix_acl.h"
#include "tests/unit/recovery/xattr_testing.h"

namespace salius::recovery {
namespace {

// A change of an attribute: set, or, without a value, removed; without a name a change of mode.
struct Change {
  std::string name, value;
  mode_t mode = 0;
};

class RandomXattrTest : public RefusedXattrTest {
 protected:
  using State = std::map<std::string, std::string>;

  // Returns a change of an ACL or of one of `others` attributes.
  static Change RandomChange(Random* random, size_t others) {
    constexpr std::array kNames = {kAccessAclXattr, "user.a", "user.b", "user.c"};
    constexpr std::array<size_t, 8> kBytes = {28, 1000, 2000, 2100, 2500, 3000, 3500, 4016};
    constexpr std::array kUsers = {1, 2, 100, 300, 400};
    constexpr std::array<mode_t, 3> kModes = {0600, 02620, 0755};
    if (random->Below(8) == 0) return {"", "", kModes.at(random->Below(kModes.size()))};
    const std::string name = kNames.at(random->Below(1 + others));
    if (random->Below(4) == 0) return {name, "", 0};
    if (name == kAccessAclXattr) return {name, Acl(kUsers.at(random->Below(kUsers.size()))), 0};
    const size_t bytes =
        random->Chance(0.3) ? 1 + random->Below(40) : kBytes.at(random->Below(kBytes.size()));
    return {name, std::string(bytes, static_cast<char>('a' + random->Below(26))), 0};
  }
  // Performs the change. Returns whether the file system accepts it.
  bool Perform(const Change& change) {
    if (change.name.empty()) return fs::Chmod(fd_.get(), change.mode).ok();
    return (change.value.empty() ? fs::RemoveXattr(fd_.get(), change.name)
                                 : fs::SetXattr(fd_.get(), change.name, change.value))
        .ok();
  }
  State Now() {
    State state;
    for (const char* name : {kAccessAclXattr, "user.a", "user.b", "user.c"}) {
      bool found = false;
      std::string value = *fs::GetXattr(fd_.get(), name, &found);
      if (found) state[name] = std::move(value);
    }
    state["mode"] = absl::StrFormat("%o", tree_->Stat("f").st_mode & 07777);
    return state;
  }
  static State With(State state, const Change& set) {
    state[set.name] = set.value;
    if (set.name == kAccessAclXattr) {
      const auto special = strtoul(state["mode"].c_str(), nullptr, 8) & 07000;
      state["mode"] = absl::StrFormat("%o", special | *ModeOfAcl(set.value));
    }
    return state;
  }
  // Makes the file as before the session, with the first `some` changes of the session.
  void StartWith(const std::vector<Change>& before, const std::vector<Change>& changes,
                 size_t some) {
    for (const auto& [name, value] : Now()) {
      if (name == "mode") continue;
      ASSERT_OK(fs::RemoveXattr(fd_.get(), name));
    }
    ASSERT_OK(fs::Chmod(fd_.get(), 0644));
    for (const Change& change : before) Perform(change);
    for (size_t i = 0; i < some; ++i) Perform(changes[i]);
  }
  void Stamp(Stamper* stamper, const Change& change) {
    if (change.name.empty()) {
      stamper->Chmod(kFile, change.mode);
    } else {
      stamper->Stamp(change.value.empty() ? Op::kRemoveXattr : Op::kSetXattr, kFile,
                     XattrBody{change.name, change.value}.Encode());
    }
  }

  void RunSeed(uint64_t seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    std::vector<Change> before(random.Below(4)), changes(1 + random.Below(9));
    const size_t others = 1 + random.Below(3);
    for (Change& change : before) change = RandomChange(&random, others);
    for (Change& change : changes) change = RandomChange(&random, others);
    // Number of changes that were made when an fsync brought them to the disk.
    const size_t synced =
        changes.size() > 1 && random.Chance(0.5) ? 1 + random.Below(changes.size() - 1) : 0;
    StartWith(before, {}, 0);
    // A change that the session is refused is cancelled before the session continues or returns an
    // error. The last one's cancel was lost, so that it may be refused again or accepted.
    Stamper stamper(7);
    bool last_refused = false;
    std::string story;
    for (size_t i = 0; i < changes.size(); ++i) {
      Stamp(&stamper, changes[i]);
      last_refused = !Perform(changes[i]);
      if (last_refused && i + 1 < changes.size()) stamper.Cancel(stamper.last());
      if (i + 1 == synced) stamper.OnDisk(kFile, stamper.last());
      absl::StrAppend(&story, changes[i].name, " ", changes[i].value.size(), " ", changes[i].mode,
                      last_refused ? " refused" : "", i + 1 == synced ? " on disk; " : "; ");
    }
    SCOPED_TRACE(story);
    const State expected = Now();
    for (size_t ahead = synced; ahead <= changes.size(); ++ahead) {
      StartWith(before, changes, ahead);
      for (int round = 0; round < 2; ++round) {
        SCOPED_TRACE(absl::StrCat(ahead, " on the disk, round ", round));
        ASSERT_OK(tree_->Run(stamper));
        const bool took_refused = last_refused && tree_->report.refused.empty();
        ASSERT_EQ(Now(), took_refused ? With(expected, changes.back()) : expected);
        ASSERT_EQ(tree_->report.refused.size(), last_refused && !took_refused ? 1u : 0u);
      }
    }
  }
};

TEST_F(RandomXattrTest, AnyDiskStateConvergesToT) {
  const uint64_t from = FromEnvironment("SALIUS_REPLAY_FIRST_SEED", 1);
  const uint64_t seeds = FromEnvironment("SALIUS_REPLAY_SEEDS", 60);
  for (uint64_t seed = from; seed < from + seeds; ++seed) {
    RunSeed(seed);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace salius::recovery

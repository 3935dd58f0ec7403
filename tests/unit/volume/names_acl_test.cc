// Mode bits, groups and ACLs of new objects, by the kernel's rules of inheritance.
#include "storage/names_acl.h"

#include <sys/stat.h>

#include <string>

#include "common/check.h"
#include "gtest/gtest.h"
#include "storage/posix_acl.h"

namespace salius {
namespace {

struct AclEntry {
  uint16_t tag, perm;
  uint32_t id;
};

std::string Acl(std::initializer_list<AclEntry> entries) {
  std::string acl("\x02\0\0\0", 4);
  for (const AclEntry& entry : entries) {
    acl += static_cast<char>(entry.tag);
    acl += '\0';
    acl += static_cast<char>(entry.perm);
    acl += '\0';
    for (int shift = 0; shift < 32; shift += 8) acl += static_cast<char>(entry.id >> shift);
  }
  return acl;
}

constexpr uint32_t kNone = 0xFFFFFFFF;

Inherited Made(const ParentFacts& parent, mode_t mode, const CallerFacts& caller) {
  auto made = Inherit(parent, mode, caller);
  SALIUS_CHECK_OK(made);
  return *made;
}

TEST(NamesAcl, UmaskCountsWithoutADefaultAcl) {
  const Inherited made = Made({.mode = 0755}, S_IFREG | 0666, {.gid = 5, .umask = 027});
  EXPECT_EQ(made.mode, static_cast<mode_t>(S_IFREG | 0640));
  EXPECT_EQ(made.gid, 5u);
  EXPECT_TRUE(made.xattrs.empty());
}

TEST(NamesAcl, MinimalDefaultAclMasksTheModeAndLeavesNoAccessAcl) {
  const std::string acl = Acl({{1, 7, kNone}, {4, 5, kNone}, {0x20, 0, kNone}});
  const ParentFacts parent{.mode = 0755, .gid = 0, .default_acl = acl};
  const Inherited file = Made(parent, S_IFREG | 0666, {.gid = 5, .umask = 077});
  EXPECT_EQ(file.mode, static_cast<mode_t>(S_IFREG | 0640));
  EXPECT_TRUE(file.xattrs.empty());
  const Inherited dir = Made(parent, S_IFDIR | 0777, {.gid = 5, .umask = 077});
  EXPECT_EQ(dir.mode, static_cast<mode_t>(S_IFDIR | 0750));
  ASSERT_EQ(dir.xattrs.size(), 1u);
  EXPECT_EQ(dir.xattrs[0].first, kDefaultAclXattr);
  EXPECT_EQ(dir.xattrs[0].second, acl);
}

TEST(NamesAcl, NamedEntriesMakeAnAccessAclWithANarrowedMask) {
  const std::string acl =
      Acl({{1, 7, kNone}, {2, 7, 4242}, {4, 5, kNone}, {0x10, 7, kNone}, {0x20, 4, kNone}});
  const Inherited made =
      Made({.mode = 0755, .gid = 0, .default_acl = acl}, S_IFREG | 0620, {.gid = 5});
  EXPECT_EQ(made.mode, static_cast<mode_t>(S_IFREG | 0620));
  ASSERT_EQ(made.xattrs.size(), 1u);
  EXPECT_EQ(made.xattrs[0].second,
            Acl({{1, 6, kNone}, {2, 7, 4242}, {4, 5, kNone}, {0x10, 2, kNone}, {0x20, 0, kNone}}));
}

TEST(NamesAcl, SymlinksInheritNeitherUmaskNorAcl) {
  const std::string acl = Acl({{1, 7, kNone}, {4, 5, kNone}, {0x20, 0, kNone}});
  const Inherited made =
      Made({.mode = 02755, .gid = 9, .default_acl = acl}, S_IFLNK | 0777, {.gid = 5, .umask = 077});
  EXPECT_EQ(made.mode, static_cast<mode_t>(S_IFLNK | 0777));
  EXPECT_EQ(made.gid, 9u);
  EXPECT_TRUE(made.xattrs.empty());
}

TEST(NamesAcl, SetgidBitIsKeptOnlyForMembersAndTheMightyAndNonExecutables) {
  const ParentFacts parent{.mode = 02755, .gid = 9, .default_acl = ""};
  const mode_t program = S_IFREG | 02755;
  EXPECT_EQ(Made(parent, program, {.gid = 5}).mode & S_ISGID, 0u);
  EXPECT_NE(Made(parent, program, {.gid = 9}).mode & S_ISGID, 0u);
  EXPECT_NE(Made(parent, program, {.gid = 5, .groups = {9}}).mode & S_ISGID, 0u);
  EXPECT_NE(Made(parent, program, {.gid = 5, .privileged = true}).mode & S_ISGID, 0u);
  EXPECT_NE(Made(parent, S_IFREG | 02744, {.gid = 5}).mode & S_ISGID, 0u);
  EXPECT_NE(Made(parent, S_IFDIR | 0755, {.gid = 5}).mode & S_ISGID, 0u);
}

// Bits of the mode that no entry bounds would be given to every user.
TEST(NamesAcl, DamagedAclIsRefused) {
  const auto refused = [](const std::string& acl) {
    const auto made = Inherit({.mode = 0755, .default_acl = acl}, S_IFREG | 0666, {});
    return absl::IsInvalidArgument(made.status());
  };
  const AclEntry owner{1, 7, kNone}, group{4, 5, kNone}, others{0x20, 0, kNone};
  const AclEntry named{2, 7, 4242}, named_group{8, 7, 4242}, mask{0x10, 7, kNone};
  const std::string sound = Acl({owner, group, others});
  ASSERT_FALSE(refused(sound));
  EXPECT_TRUE(refused("abc"));
  EXPECT_TRUE(refused(sound.substr(0, 4)));
  EXPECT_TRUE(refused(sound.substr(0, sound.size() - 1)));
  EXPECT_TRUE(refused('\x03' + sound.substr(1)));
  EXPECT_TRUE(refused(Acl({group, others})));
  EXPECT_TRUE(refused(Acl({owner, others})));
  EXPECT_TRUE(refused(Acl({owner, group})));
  EXPECT_TRUE(refused(Acl({owner, group, others, others})));
  EXPECT_TRUE(refused(Acl({owner, others, group})));
  EXPECT_TRUE(refused(Acl({owner, named, group, others})));
  EXPECT_TRUE(refused(Acl({owner, group, named_group, others})));
  EXPECT_FALSE(refused(Acl({owner, named, named, group, named_group, mask, others})));
  EXPECT_TRUE(refused(Acl({{1, 8, kNone}, group, others})));
  EXPECT_TRUE(refused(Acl({{3, 7, kNone}, group, others})));
  EXPECT_TRUE(refused(Acl({owner, group, others, {0x40, 7, kNone}})));
}

}  // namespace
}  // namespace salius

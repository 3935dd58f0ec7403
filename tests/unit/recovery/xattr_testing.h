// Shared by the tests of extended attributes in replay.
#pragma once

#include <string>

#include "tests/unit/recovery/refusal_testing.h"

namespace salius::recovery {

class RefusedXattrTest : public RefusalTest {
 protected:
  void SetUp() override {
    RefusalTest::SetUp();
    if (!IsSkipped()) fd_ = MustOpen(tree_->At("f"), O_PATH);
  }
  void TearDown() override {
    fd_.Reset();
    RefusalTest::TearDown();
  }
  // Returns an ACL that lets this many users read.
  static std::string Acl(int users) {
    std::string acl;
    const auto add = [&](uint16_t tag, uint16_t bits, uint32_t id) {
      acl.append(reinterpret_cast<const char*>(&tag), 2);
      acl.append(reinterpret_cast<const char*>(&bits), 2);
      acl.append(reinterpret_cast<const char*>(&id), 4);
    };
    const uint32_t version = 2;
    acl.append(reinterpret_cast<const char*>(&version), 4);
    add(0x01, 7, UINT32_MAX);
    for (int i = 0; i < users; ++i) add(0x02, 4, 1000 + static_cast<uint32_t>(i));
    add(0x04, 0, UINT32_MAX);
    add(0x10, 5, UINT32_MAX);
    add(0x20, 1, UINT32_MAX);
    return acl;
  }

  UniqueFd fd_;  // of the file, O_PATH
};

}  // namespace salius::recovery

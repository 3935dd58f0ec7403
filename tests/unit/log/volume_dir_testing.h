// Shared by the tests of a volume's directory: a small configuration and a mount.
#pragma once

#include <sys/mount.h>

#include <string>

#include "common/check.h"
#include "storage/volume_config.h"

namespace salius {

inline VolumeConfig SmallConfig() {
  VolumeConfig config = DefaultVolumeConfig();
  config.log_max_bytes = 1 << 20;
  config.stable_log_bytes = 3 << 20;
  config.ballast_bytes = 1 << 20;
  config.replicas = {"10.0.0.1:1", "10.0.0.2:1"};
  config.acks = 2;
  return config;
}

class Mount {
 public:
  Mount(const char* type, const std::string& where, unsigned long flags, const std::string& data)
      : where_(where), ok_(mount(type, where.c_str(), type, flags, data.c_str()) == 0) {}
  ~Mount() {
    if (ok_) SALIUS_CHECK(umount2(where_.c_str(), MNT_DETACH) == 0);
  }
  bool ok() const { return ok_; }

 private:
  std::string where_;
  bool ok_;
};

}  // namespace salius

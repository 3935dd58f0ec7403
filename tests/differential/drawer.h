// Draws the operations of one process from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/differential/operation.h"
#include "tests/differential/random.h"

namespace salius::differential {

// Draws operations. Paths come from few names, so that operations meet, and often from those that
// were made not long ago.
class Drawer {
 public:
  // `listings`: also draws kListSome and kListAgain.
  Drawer(uint64_t seed, bool listings, Profile profile = Profile::kAll)
      : random_(seed), listings_(listings), profile_(profile) {}

  Operation Draw();
  // Notes that an operation made this path, or a directory there.
  void NoteMade(const Path& path, bool directory);
  // Notes that there is nothing at this path.
  void NoteMissing(const Path& path);
  Random& random() { return random_; }
  // Draws the path of something that is expected to be there.
  Path DrawPath();
  Path DrawDirectory();

 private:
  Kind DrawKind();
  Operation DrawOfData();
  std::string DrawName();
  Path DrawNewPath();
  std::string DrawTarget();
  void DrawOpen(Operation& operation);
  void DrawData(Operation& operation);
  void DrawNames(Operation& operation);
  // Draws an operation on a directory's slot.
  void DrawSlot(Operation& operation);
  void DrawAttributes(Operation& operation);
  void DrawTimes(Operation& operation);
  void DrawXattr(Operation& operation);
  std::string DrawAcl();
  std::string DrawCapability();

  Random random_;
  const bool listings_;
  const Profile profile_;
  std::vector<std::string> made_;  // below the top
  std::vector<std::string> directories_;
};

}  // namespace salius::differential

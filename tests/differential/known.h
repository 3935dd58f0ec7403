// The differences that are right: each is documented, with the place.
#pragma once

#include <sys/stat.h>

#include <vector>

#include "tests/differential/operation.h"
#include "tests/differential/side.h"

namespace salius::differential {

// Returns whether two different results of one operation are a known difference.
bool IsKnown(const Operation& operation, const Result& mount, const Result& bare);
// Returns the operation, or a similar one where even two bare file systems differ.
Operation Comparable(Operation operation, const Side& bare);
// The objects of an exchange whose times differ on two file systems. xfs changes no time of
// exchanged files, and the mtime too of a directory that gets another parent. Made before the
// operation.
class ExchangedObjects {
 public:
  ExchangedObjects(const Operation& operation, const Side& mount, const Side& bare);
  ~ExchangedObjects();
  ExchangedObjects(const ExchangedObjects&) = delete;
  ExchangedObjects& operator=(const ExchangedObjects&) = delete;

  // Gives them a new mtime. To be called after the exchange.
  void Touch() const;

 private:
  std::vector<int> fds_;
};

// Returns whether the times of an object of this type are compared.
bool HasTimes(mode_t mode);

}  // namespace salius::differential

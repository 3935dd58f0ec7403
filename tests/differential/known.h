// The differences that are right: each is documented, with the place.
#pragma once

#include "tests/differential/operation.h"
#include "tests/differential/side.h"

namespace salius::differential {

// Returns whether two different results of one operation are a known difference.
bool IsKnown(const Operation& operation, const Result& mount, const Result& bare);
// Returns the operation, or a similar one where even two bare file systems differ.
Operation Comparable(Operation operation, const Side& bare);
// Gives both objects of an exchange that succeeded a new mtime, where file systems differ in which of
// their times it changes.
void TouchExchanged(const Operation& operation, const Side& mount, const Side& bare);
// Returns whether the times of an object of this type are compared.
bool HasTimes(mode_t mode);

}  // namespace salius::differential

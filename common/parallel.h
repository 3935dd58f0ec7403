#pragma once

#include <cstddef>
#include <functional>

namespace salius {

// Calls `one` with every number below `count`, in any order, on as many threads as there are CPUs;
// returns when all calls have.
void OnAllCpus(size_t count, const std::function<void(size_t)>& one);

}  // namespace salius

// A replica's report on one volume, as a value (proto/control.proto, VolumeInventory).
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstdint>

#include "common/ids.h"

namespace salius::recovery {

struct Inventory {
  bool known = false;  // false: holds nothing and promises nothing ("unknown", I5)
  Epoch epoch = 0;     // of its session, 0: none
  Seq base = 0;        // first seq of the session it holds
  Seq contiguous = 0;
  Seq highest = 0;
  uint64_t records = 0;
  uint64_t bytes = 0;
  Seq trimmed = 0;
  Seq durable_mark = 0;
  Seq checkpoint_mark = 0;
  Epoch promised_epoch = 0;
};

}  // namespace salius::recovery

// The records that are wanted in the stable log, and those that were given to its writer.
//
//        checkpoint        scan               upto       issued
//            |   given out   |  still wanted    |   not    |
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstdint>
#include <vector>

#include "client/session/window.h"
#include "common/ids.h"

namespace salius {

class StableCursor {
 public:
  // `window`: outlives this object.
  explicit StableCursor(Window& window) : window_(window) {}

  // Wants every record that was issued so far.
  void WantAll() { upto_ = window_.issued(); }
  // Returns the last record that was wanted.
  Seq upto() const { return upto_; }
  // Returns whether Take has something.
  bool wanted() const { return scan_ < upto_; }

  // Returns records to append now, at most `max_bytes` (at least one when any is wanted). They
  // count as in flight until Appended or NoRoom.
  std::vector<Seq> Take(uint64_t max_bytes);
  // Takes records of Take as on the disk.
  void Appended(const std::vector<Seq>& seqs);
  // Takes them as not appended, because the log is full. They are wanted again. Returns whether
  // any of them is not checkpointed: then a checkpoint makes room.
  bool NoRoom(const std::vector<Seq>& seqs);

 private:
  Window& window_;
  Seq upto_ = 0;
  Seq scan_ = 0;
};

}  // namespace salius

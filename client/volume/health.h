// Whether a volume accepts changes. It does not once its record stream has failed, or once it has
// failed itself: a sync outside the stream returned an error (I8).
//
// Threads: any. The lock is a leaf.
#pragma once

#include <atomic>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/gate/page.h"
#include "client/volume/stream_slot.h"

namespace salius {

// Return an error of the stream as the caller gets it: EROFS for a name operation of which no
// record was issued, so that nothing has happened; EIO for everything else.
absl::Status AsNameError(const absl::Status& status);
absl::Status AsDataError(const absl::Status& status);

class Health {
 public:
  // gate_page: of a mount with commit=external, null otherwise. It outlives this.
  explicit Health(const StreamSlot& stream, gate::Page* gate_page = nullptr)
      : stream_(stream), gate_page_(gate_page) {}

  // Return OK while changes are allowed; EIO for data, EROFS for names (I8).
  absl::Status Data() const;
  absl::Status Names() const { return AsNameError(Data()); }
  // Returns the volume's own failure, without the stream's.
  absl::Status failure() const;
  // Turns the volume read-only: a sync outside the stream failed. The first error is kept. The syncs
  // of gated processes ask the daemon from then on, and get it.
  void Fail(const absl::Status& why);

 private:
  const StreamSlot& stream_;
  gate::Page* const gate_page_;
  std::atomic<bool> failed_{false};  // `failure_` is set
  mutable absl::Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

}  // namespace salius

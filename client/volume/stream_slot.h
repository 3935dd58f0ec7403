// The place of a volume's record stream. It is empty while the stream is being started: the stream
// may call the volume's sink by then.
//
// Threads: any; Set and End by the thread that opens and ends the volume.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "client/session/record_stream.h"
#include "common/ids.h"

namespace salius {

class StreamSlot {
 public:
  // Returns the stream; null before Set and after End.
  RecordStream* get() const { return stream_.load(); }
  RecordStream& operator*() const { return *get(); }
  RecordStream* operator->() const { return get(); }
  // Returns the last seq issued; 0 without a stream.
  Seq issued() const {
    const RecordStream* const stream = get();
    return stream != nullptr ? stream->watermarks().issued : 0;
  }

  void Set(std::unique_ptr<RecordStream> stream) {
    owned_ = std::move(stream);
    stream_.store(owned_.get());
  }
  // Ends the stream. Its threads may use the slot until this returns.
  void End() {
    owned_.reset();
    stream_.store(nullptr);
  }

 private:
  std::unique_ptr<RecordStream> owned_;
  std::atomic<RecordStream*> stream_{nullptr};
};

}  // namespace salius

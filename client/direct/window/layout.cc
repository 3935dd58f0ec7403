#include "client/direct/window/layout.h"

#include <bit>
#include <new>

#include "client/direct/window/robust_lock.h"

namespace salius::direct {
namespace {

constexpr uint64_t kPage = 4096;

uint64_t Round(uint64_t bytes) { return (bytes + kPage - 1) & ~(kPage - 1); }

// Sets the offsets of the parts, and total_bytes.
void Place(const WindowSpec& spec, Header& header) {
  SALIUS_REQUIRE(std::has_single_bit(spec.slots) && std::has_single_bit(spec.stripes) &&
                 std::has_single_bit(spec.files));
  header.stripes = spec.stripes;
  header.files = spec.files;
  header.slots = spec.slots;
  header.ring_bytes = Round(spec.ring_bytes);
  header.stripes_at = Round(sizeof(Header));
  header.files_at = header.stripes_at + Round(spec.stripes * sizeof(Stripe));
  header.window_at = header.files_at + Round(spec.files * sizeof(FileEntry));
  header.records_at = header.window_at + Round(Window::BytesFor(spec.slots));
  header.ring_at = header.records_at + Round(spec.slots * sizeof(RecordSlot));
  header.total_bytes = header.ring_at + header.ring_bytes;
}

}  // namespace

uint64_t SharedWindow::BytesFor(const WindowSpec& spec) {
  Header header{};
  Place(spec, header);
  return header.total_bytes;
}

SharedWindow SharedWindow::Format(void* memory, const WindowSpec& spec) {
  Header& header = *new (memory) Header{};
  SharedWindow window;
  window.header_ = &header;
  Place(spec, header);
  header.version = kWindowVersion;
  header.header_bytes = sizeof(Header);
  header.replicas = spec.replicas;
  header.volume = spec.volume;
  header.epoch = spec.epoch;
  header.session = spec.session;
  header.root_device = spec.root_device;
  header.root_inode = spec.root_inode;
  header.oldest_ns = spec.oldest_ns;
  header.bulk_bytes = spec.bulk_bytes;
  header.in_flight_bytes = spec.in_flight_bytes;
  header.few = spec.few;
  header.last_timestamp_ns = spec.last_timestamp_ns;
  header.file_ids.next = spec.next_file_id;
  header.file_ids.limit = spec.file_id_limit;
  header.file_ids.few = (spec.file_id_limit - spec.next_file_id) / 2;
  header.sync_epoch = 1;
  header.next_leader = 1;
  header.seal.next_counter = 1;
  header.phase = PhaseWord::Of(Phase::kLocal, 1).value;
  InitLock(header.window_lock);
  InitLock(header.life);
  for (uint32_t i = 0; i < header.stripes; ++i) {
    InitLock(window.stripe(i).lock);
    window.stripe(i).file = kNoFile;
  }
  Window::Create(&window.window(), spec.slots);
  header.magic = kWindowMagic;
  return window;
}

SharedWindow SharedWindow::Attach(void* memory, uint64_t bytes) {
  SharedWindow window;
  if (bytes < sizeof(Header)) return window;
  Header& header = *static_cast<Header*>(memory);
  if (header.magic != kWindowMagic || header.version != kWindowVersion ||
      header.header_bytes != sizeof(Header) || header.total_bytes != bytes) {
    return window;
  }
  if (!std::has_single_bit(header.slots) || !std::has_single_bit(header.stripes) ||
      !std::has_single_bit(header.files)) {
    return window;
  }
  WindowSpec spec;
  spec.slots = header.slots;
  spec.stripes = header.stripes;
  spec.files = header.files;
  spec.ring_bytes = header.ring_bytes;
  Header expected{};
  Place(spec, expected);
  if (expected.total_bytes != bytes || expected.files_at != header.files_at ||
      expected.window_at != header.window_at || expected.records_at != header.records_at ||
      expected.ring_at != header.ring_at || expected.stripes_at != header.stripes_at) {
    return window;
  }
  window.header_ = &header;
  return window;
}

}  // namespace salius::direct

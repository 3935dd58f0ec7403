#include "transport/sealed_channel.h"

#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace salius {
namespace {

// Batches without an acceptable datagram that one Receive passes over: a flood must not stop time.
constexpr int kMostRounds = 64;
// Sealed bytes that are sent together. Few, so that they are still in the CPU's cache when the
// kernel copies them for the last destination; a slice ends where the next run of frames begins, or
// at its largest.
constexpr size_t kSliceBytes = size_t{256} << 10;
constexpr size_t kMostSliceBytes = size_t{1} << 20;
constexpr size_t kMostDatagram = size_t{64} << 10;

size_t BytesOf(absl::Span<const iovec> parts) {
  size_t bytes = 0;
  for (const iovec& part : parts) bytes += part.iov_len;
  return bytes;
}

bool SameFrame(const OutDatagram& a, const OutDatagram& b) {
  return a.parts.data() == b.parts.data() && a.parts.size() == b.parts.size() &&
         a.key_id == b.key_id && a.plain == b.plain;
}

// The sealed datagrams of one thread that are sent next. Its memory is used again.
struct Slice {
  Slice() { bytes.resize(kMostSliceBytes + kMostDatagram); }

  void Clear() {
    used = 0;
    plain.clear();
    out.clear();
    parts.clear();
    twin = 0;
  }
  // Returns the index of a datagram here that has the same frame. The datagrams to the next
  // destination repeat those to the one before, in their order.
  std::optional<size_t> Find(const OutDatagram& datagram) {
    if (twin < plain.size() && SameFrame(*plain[twin], datagram)) return twin++;
    const bool next_run = !plain.empty() && plain.back()->to != datagram.to;
    for (size_t i = 0; next_run && i < plain.size(); ++i) {
      if (!SameFrame(*plain[i], datagram)) continue;
      twin = i + 1;
      return i;
    }
    return std::nullopt;
  }
  void Add(const OutDatagram& datagram, const iovec& sealed) {
    plain.push_back(&datagram);
    parts.push_back(sealed);
    out.push_back(datagram);
  }

  std::vector<uint8_t> bytes;
  size_t used = 0;
  std::vector<const OutDatagram*> plain;
  std::vector<iovec> parts;      // of `out`, one each
  std::vector<OutDatagram> out;  // its parts are set when the slice is sent
  size_t twin = 0;
};

Slice& ThreadSlice() {
  thread_local Slice slice;
  return slice;
}

// Adds a copy of a datagram, as it is.
void AddPlain(const OutDatagram& datagram, size_t bytes, Slice& slice) {
  uint8_t* const out = slice.bytes.data() + slice.used;
  for (const iovec& part : datagram.parts) {
    if (part.iov_len != 0)
      std::memcpy(slice.bytes.data() + slice.used, part.iov_base, part.iov_len);
    slice.used += part.iov_len;
  }
  slice.Add(datagram, iovec{out, bytes});
}

}  // namespace

SealedChannel::SealedChannel(std::unique_ptr<DatagramChannel> inner, KeyRing& ring, Options options)
    : inner_(std::move(inner)), ring_(ring), options_(std::move(options)) {
  if (options_.clock == nullptr) return;
  guard_.emplace(*inner_, ring_, /*notices=*/static_cast<bool>(options_.on_notice),
                 *options_.clock);
}

size_t SealedChannel::Send(absl::Span<const OutDatagram> batch) {
  Slice& slice = ThreadSlice();
  slice.Clear();
  // Sends the slice. Returns how many of its datagrams were not handed over.
  const auto flush = [&]() -> size_t {
    for (size_t i = 0; i < slice.out.size(); ++i) {
      slice.out[i].parts = absl::MakeConstSpan(&slice.parts[i], 1);
    }
    const size_t left = slice.out.size() - inner_->Send(slice.out);
    if (left == 0) slice.Clear();
    return left;
  };
  uint32_t key_id = 0;
  std::shared_ptr<SealingKey> key;
  std::optional<SealingKey::Use> use;
  for (const OutDatagram& datagram : batch) {
    const size_t bytes = BytesOf(datagram.parts);
    if (bytes == 0) {
      slice.Add(datagram, iovec{});
      continue;
    }
    if (const std::optional<size_t> twin = slice.Find(datagram)) {
      slice.Add(datagram, slice.parts[*twin]);
      continue;
    }
    if (bytes + kSealBytes > kMostDatagram) continue;
    const bool begins_run = !slice.plain.empty() && slice.plain.back()->to != datagram.to;
    if (slice.used > (begins_run ? kSliceBytes : kMostSliceBytes)) {
      if (const size_t left = flush(); left > 0) {
        return static_cast<size_t>(slice.plain[slice.out.size() - left] - batch.data());
      }
    }
    if (datagram.plain) {
      AddPlain(datagram, bytes, slice);
      continue;
    }
    if (key == nullptr || datagram.key_id != key_id) {
      key_id = datagram.key_id;
      use.reset();
      key = ring_.Sealing(datagram.key_id);
      if (key == nullptr && datagram.key_id == 0 && options_.plain_without_key) {
        AddPlain(datagram, bytes, slice);
      }
      if (key == nullptr) continue;
      use.emplace(*key);
    }
    uint8_t* const out = slice.bytes.data() + slice.used;
    const size_t sealed = use->Seal(datagram.parts, out);
    slice.used += sealed;
    slice.Add(datagram, iovec{out, sealed});
  }
  const size_t left = flush();
  return left == 0 ? batch.size()
                   : static_cast<size_t>(slice.plain[slice.out.size() - left] - batch.data());
}

absl::StatusOr<size_t> SealedChannel::Receive(InBatch& batch, bool wait) {
  for (int round = 0; round < kMostRounds; ++round) {
    const absl::StatusOr<size_t> got = inner_->Receive(batch, wait && round == 0);
    if (!got.ok() || *got == 0) return got;
    batch.Filter([this](InDatagram& datagram, absl::Span<uint8_t> bytes) {
      return Accept(datagram, bytes);
    });
    if (guard_.has_value()) guard_->Received(*got - batch.size());
    if (batch.size() > 0) return batch.size();
  }
  return size_t{0};
}

bool SealedChannel::Accept(InDatagram& datagram, absl::Span<uint8_t> bytes) {
  // The owner counts and drops a truncated one.
  if (bytes.empty() || datagram.truncated) return true;
  KeyRing::Opened opened;
  const SealRefusal refusal = ring_.Open(bytes, &opened);
  if (refusal == SealRefusal::kNoKey) Notify(opened.prefix, datagram);
  if (refusal != SealRefusal::kNone) return false;
  if (opened.prefix.kind == SealKind::kNoKey) {
    if (options_.on_notice && ring_.Sealed(opened.prefix)) options_.on_notice(*datagram.from);
    return false;
  }
  datagram.bytes = opened.frame;
  datagram.key_id = opened.prefix.key_id;
  datagram.sender = opened.prefix.sender;
  return true;
}

void SealedChannel::Notify(const SealPrefix& prefix, const InDatagram& datagram) {
  if (!options_.may_notify || !options_.may_notify(*datagram.from)) return;
  SealPrefix notice = prefix;
  notice.kind = SealKind::kNoKey;
  std::array<uint8_t, kSealPrefixBytes> bytes;
  EncodeSealPrefix(notice, bytes.data());
  const iovec part{bytes.data(), bytes.size()};
  const OutDatagram out{datagram.from, absl::MakeConstSpan(&part, 1), datagram.at};
  inner_->Send(absl::MakeConstSpan(&out, 1));
}

absl::Status SealedChannel::SetReceiveTimeout(int64_t micros) {
  return inner_->SetReceiveTimeout(micros);
}

}  // namespace salius

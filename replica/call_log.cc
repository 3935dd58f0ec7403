#include "replica/call_log.h"

#include <algorithm>
#include <utility>

namespace salius {
namespace {

constexpr std::array<std::string_view, kCallKinds> kNames = {"open", "fetch", "fence", "drop",
                                                             "forget"};

size_t IndexOf(CallKind kind, bool accepted) {
  return 2 * static_cast<size_t>(kind) + (accepted ? 1 : 0);
}

// Cuts a text of UTF-8 between two characters: gRPC refuses a message with a part of one.
void Shorten(std::string& text) {
  if (text.size() <= CallLog::kMaxText) return;
  size_t size = CallLog::kMaxText;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  text.resize(size);
}

}  // namespace

std::string_view CallName(CallKind kind) { return kNames[static_cast<size_t>(kind)]; }

CallLog::CallLog() {
  for (size_t kind = 0; kind < kCallKinds; ++kind) {
    for (const bool accepted : {false, true}) {
      calls_[IndexOf(static_cast<CallKind>(kind), accepted)].total = &GetCounter(
          "salius_replica_control_calls_total", "Control calls, by kind and result",
          {{"kind", std::string(kNames[kind])}, {"result", accepted ? "accepted" : "refused"}});
    }
  }
}

void CallLog::Add(CallEntry entry) {
  for (std::string* const text : {&entry.volume, &entry.identity, &entry.peer, &entry.reason}) Shorten(*text);
  absl::MutexLock lock(&mutex_);
  Calls& calls = calls_[IndexOf(entry.kind, entry.accepted)];
  calls.total->Increment();
  if (!entry.identity.empty()) CountIdentity(entry);
  if (calls.last.size() == kKept) calls.last.pop_front();
  calls.last.push_back({added_++, std::move(entry)});
}

void CallLog::CountIdentity(const CallEntry& entry) {
  std::string name = entry.identity;
  if (!identities_.contains(name) && identities_.size() >= kMaxIdentities) name = "others";
  std::array<Counter*, 2>& counters = identities_[name];
  for (const bool accepted : {false, true}) {
    Counter*& counter = counters[accepted ? 1 : 0];
    if (counter != nullptr) continue;
    counter = &GetCounter("salius_replica_identity_calls_total",
                          "Control calls, by the caller's identity and result",
                          {{"identity", name}, {"result", accepted ? "accepted" : "refused"}});
  }
  counters[entry.accepted ? 1 : 0]->Increment();
}

std::vector<CallEntry> CallLog::Recent() const {
  std::vector<Numbered> recent;
  {
    absl::MutexLock lock(&mutex_);
    for (const Calls& calls : calls_) {
      recent.insert(recent.end(), calls.last.begin(), calls.last.end());
    }
  }
  std::sort(recent.begin(), recent.end(),
            [](const Numbered& a, const Numbered& b) { return a.number > b.number; });
  std::vector<CallEntry> entries;
  entries.reserve(recent.size());
  for (Numbered& one : recent) entries.push_back(std::move(one.entry));
  return entries;
}

}  // namespace salius

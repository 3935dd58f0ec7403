#include "client/preload/environment.h"

#include <cstring>

namespace salius::preload {
namespace {

constexpr size_t kPreloadLength = sizeof(kPreload) - 1;

bool IsPreload(const char* entry) {
  return strncmp(entry, kPreload, kPreloadLength) == 0 && entry[kPreloadLength] == '=';
}
bool IsOwn(const char* entry) {
  for (const char* const prefix : kOwnPrefixes) {
    if (strncmp(entry, prefix, strlen(prefix)) == 0) return true;
  }
  return false;
}

// Returns whether the list `value` of LD_PRELOAD (colons or spaces between) has `path`.
bool Lists(const char* value, const char* path) {
  const size_t length = strlen(path);
  for (const char* at = value; *at != '\0';) {
    const size_t word = strcspn(at, ": ");
    if (word == length && strncmp(at, path, length) == 0) return true;
    at += word;
    if (*at != '\0') ++at;
  }
  return false;
}

}  // namespace

const char* KeptEnvironment::Preload(char* const* environment) {
  if (environment == nullptr) return nullptr;
  for (; *environment != nullptr; ++environment) {
    if (IsPreload(*environment)) return *environment + kPreloadLength + 1;
  }
  return nullptr;
}

bool KeptEnvironment::Keep(char* const* environment) {
  const char* preload = Preload(environment);
  if (preload == nullptr) return false;
  const size_t path = strcspn(preload, ": ");
  if (path == 0 || path >= kBytes) return false;
  memcpy(text_, preload, path);
  size_t used = path + 1;
  int count = 0;
  for (char* const* at = environment; *at != nullptr; ++at) {
    if (!IsOwn(*at)) continue;
    const size_t length = strlen(*at) + 1;
    if (count == kMost || used + length > kBytes) return false;
    memcpy(text_ + used, *at, length);
    entries_[count++] = text_ + used;
    used += length;
  }
  count_ = count;
  path_ = text_;
  return true;
}

bool KeptEnvironment::Has(char* const* environment, const char* entry) const {
  for (; *environment != nullptr; ++environment) {
    if (strcmp(*environment, entry) == 0) return true;
  }
  return false;
}

bool KeptEnvironment::Lacks(char* const* environment) const {
  if (path_ == nullptr) return false;
  const char* preload = Preload(environment);
  if (preload == nullptr || !Lists(preload, path_)) return true;
  for (int i = 0; i < count_; ++i) {
    if (!Has(environment, entries_[i])) return true;
  }
  return false;
}

size_t KeptEnvironment::Pointers(char* const* environment) const {
  size_t pointers = static_cast<size_t>(count_) + 2;
  if (environment != nullptr) {
    while (*environment != nullptr) ++environment, ++pointers;
  }
  return pointers;
}

size_t KeptEnvironment::Bytes(char* const* environment) const {
  const char* preload = Preload(environment);
  return kPreloadLength + 1 + strlen(path_) + 1 + (preload == nullptr ? 0 : strlen(preload)) + 1;
}

void KeptEnvironment::Complete(char* const* environment, char** pointers, char* bytes) const {
  const char* preload = Preload(environment);
  char* at = stpcpy(stpcpy(stpcpy(bytes, kPreload), "="), path_);
  if (preload != nullptr && Lists(preload, path_)) {
    strcpy(bytes + kPreloadLength + 1, preload);
  } else if (preload != nullptr && *preload != '\0') {
    stpcpy(stpcpy(at, ":"), preload);
  }
  *pointers++ = bytes;
  for (int i = 0; i < count_; ++i) *pointers++ = const_cast<char*>(entries_[i]);
  if (environment != nullptr) {
    for (; *environment != nullptr; ++environment) {
      if (!IsPreload(*environment) && !IsOwn(*environment)) *pointers++ = *environment;
    }
  }
  *pointers = nullptr;
}

}  // namespace salius::preload

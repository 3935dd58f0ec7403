#include "transport/sealer.h"

#include <openssl/evp.h>

#include <cstring>

#include "common/check.h"
#include "common/limits.h"
#include "common/random.h"

namespace salius {
namespace {

// These calls fail only where OpenSSL lacks the cipher or memory.
void Must(int ok) { SALIUS_CHECK(ok == 1); }

CipherContext NewContext() {
  CipherContext context(EVP_CIPHER_CTX_new());
  SALIUS_CHECK(context != nullptr);
  return context;
}

}  // namespace

void FreeCipherContext::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);  // clears the key, too
}

SealKey NewSealKey() {
  SealKey key;
  SecureRandomBytes(key.data(), key.size());
  return key;
}

uint64_t NonceCounter::Take(uint64_t count) {
  const uint64_t first = next_.fetch_add(count, std::memory_order_relaxed);
  SALIUS_CHECK(first <= kMaxCount && count <= kMaxCount - first);
  return first;
}

Sealer::Sealer(const SealKey& key) : context_(NewContext()) {
  Must(EVP_EncryptInit_ex(context_.get(), EVP_aes_128_gcm(), nullptr, key.data(), nullptr));
}

size_t Sealer::Seal(const SealPrefix& prefix, absl::Span<const iovec> parts, uint8_t* out) {
  EVP_CIPHER_CTX* const context = context_.get();
  EncodeSealPrefix(prefix, out);
  int length = 0;
  Must(EVP_EncryptInit_ex(context, nullptr, nullptr, nullptr, NonceOf(prefix).data()));
  Must(EVP_EncryptUpdate(context, nullptr, &length, out, kSealPrefixBytes));
  uint8_t* to = out + kSealPrefixBytes;
  for (const iovec& part : parts) {
    if (part.iov_len == 0) continue;
    Must(EVP_EncryptUpdate(context, to, &length, static_cast<const uint8_t*>(part.iov_base),
                           static_cast<int>(part.iov_len)));
    to += part.iov_len;
  }
  Must(EVP_EncryptFinal_ex(context, to, &length));
  Must(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kSealTagBytes, to));
  return static_cast<size_t>(to - out) + kSealTagBytes;
}

Opener::Opener(const SealKey& key) : context_(NewContext()) {
  Must(EVP_DecryptInit_ex(context_.get(), EVP_aes_128_gcm(), nullptr, key.data(), nullptr));
}

absl::Span<const uint8_t> Opener::Open(const SealPrefix& prefix, absl::Span<uint8_t> datagram) {
  if (datagram.size() <= kSealBytes) return {};
  EVP_CIPHER_CTX* const context = context_.get();
  const absl::Span<uint8_t> body =
      datagram.subspan(kSealPrefixBytes, datagram.size() - kSealBytes);
  uint8_t* const tag = body.data() + body.size();
  int length = 0;
  Must(EVP_DecryptInit_ex(context, nullptr, nullptr, nullptr, NonceOf(prefix).data()));
  Must(EVP_DecryptUpdate(context, nullptr, &length, datagram.data(), kSealPrefixBytes));
  Must(EVP_DecryptUpdate(context, body.data(), &length, body.data(),
                         static_cast<int>(body.size())));
  Must(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, kSealTagBytes, tag));
  if (EVP_DecryptFinal_ex(context, tag, &length) == 1) return body;
  std::memset(body.data(), 0, body.size() + kSealTagBytes);
  return {};
}

}  // namespace salius

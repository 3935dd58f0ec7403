#include "client/cli/bench_target.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <latch>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/random.h"

namespace salius::cli {
namespace {

// The files are first filled in pieces of this size: few synchronous writes even on a slow disk.
constexpr size_t kFillBytes = 1 << 20;

int64_t Now() { return SystemClock().MonotonicNanos(); }

}  // namespace

absl::StatusOr<std::unique_ptr<WriteTarget>> WriteTarget::Make(const std::string& directory,
                                                               Plan plan) {
  plan.span = std::max(plan.size, plan.span / plan.size * plan.size);
  std::unique_ptr<WriteTarget> target(new WriteTarget(plan));
  target->writers_.resize(plan.writers);
  for (size_t i = 0; i < target->writers_.size(); ++i) {
    Writer& writer = target->writers_[i];
    const std::string path = absl::StrCat(directory, "/.salius-bench.", SecureRandom64());
    SALIUS_ASSIGN_OR_RETURN(writer.fd,
                            OpenAt(AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL | O_SYNC, 0600));
    writer.path = path;
    SALIUS_RETURN_IF_ERROR(target->Prepare(writer));
  }
  return target;
}

WriteTarget::~WriteTarget() {
  for (Writer& writer : writers_) {
    if (!writer.path.empty()) unlink(writer.path.c_str());
  }
}

absl::Status WriteTarget::Prepare(Writer& writer) const {
  writer.position = 0;
  if (plan_.append) {
    if (ftruncate(writer.fd.get(), 0) != 0) return ErrnoStatus(errno, "truncate");
    return absl::OkStatus();
  }
  const std::vector<uint8_t> fill(kFillBytes, 'f');
  for (uint64_t at = 0; at < plan_.span; at += fill.size()) {
    const size_t bytes = std::min<uint64_t>(fill.size(), plan_.span - at);
    SALIUS_RETURN_IF_ERROR(PwriteFull(writer.fd.get(), absl::MakeConstSpan(fill).first(bytes), at));
  }
  return absl::OkStatus();
}

void WriteTarget::RunWriter(Writer& writer, int64_t end_ns) const {
  int64_t before = Now();
  while (before < end_ns) {
    const ssize_t written = pwrite(writer.fd.get(), data_.data(), data_.size(), writer.position);
    const int64_t after = Now();
    if (written != static_cast<ssize_t>(data_.size())) {
      writer.status =
          written < 0 ? ErrnoStatus(errno, "write") : absl::InternalError("short write");
      return;
    }
    writer.samples_ns.push_back(after - before);
    writer.position += data_.size();
    if (!plan_.append && writer.position >= plan_.span) writer.position = 0;
    before = after;
  }
}

absl::StatusOr<LatencySummary> WriteTarget::Round(int64_t length_ns) {
  if (plan_.append) {
    for (Writer& writer : writers_) SALIUS_RETURN_IF_ERROR(Prepare(writer));
  }
  std::latch start(static_cast<ptrdiff_t>(writers_.size()) + 1);
  std::vector<std::thread> threads;
  const int64_t begin = Now();
  for (Writer& writer : writers_) {
    threads.emplace_back([this, &writer, &start, length_ns] {
      start.arrive_and_wait();
      RunWriter(writer, Now() + length_ns);
    });
  }
  start.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();
  const int64_t elapsed = Now() - begin;

  std::vector<uint64_t> samples;
  for (Writer& writer : writers_) {
    SALIUS_RETURN_IF_ERROR(writer.status);
    samples.insert(samples.end(), writer.samples_ns.begin(), writer.samples_ns.end());
    writer.samples_ns.clear();
  }
  return Summarize(std::move(samples), elapsed);
}

absl::StatusOr<LatencySummary> PingTarget::Round(int64_t length_ns) {
  std::vector<uint64_t> samples;
  const int64_t begin = Now();
  int64_t before = begin;
  while (before < begin + length_ns) {
    SALIUS_RETURN_IF_ERROR(ping_.Exchange(data_));
    const int64_t after = Now();
    samples.push_back(after - before);
    before = after;
  }
  return Summarize(std::move(samples), before - begin);
}

}  // namespace salius::cli

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

Json SummaryJson(const LatencySummary& summary) {
  return Json{{"operations", summary.operations},
              {"ops_per_second", JsonFraction(summary.ops_per_second)},
              {"p50_us", JsonFraction(summary.p50_us)},
              {"p99_us", JsonFraction(summary.p99_us)},
              {"p999_us", JsonFraction(summary.p999_us)},
              {"max_us", JsonFraction(summary.max_us)},
              {"slowest_writer", JsonFraction(summary.slowest_writer)},
              {"median_writer", JsonFraction(summary.median_writer)}};
}

void ClosedLoop::Run(size_t writer, int64_t end_ns, Samples& samples) {
  int64_t before = Now();
  while (before < end_ns) {
    samples.status = Operate(writer);
    if (!samples.status.ok()) return;
    const int64_t after = Now();
    samples.ns.push_back(after - before);
    before = after;
  }
}

absl::StatusOr<LatencySummary> ClosedLoop::Round(int64_t length_ns) {
  for (size_t i = 0; i < writers_; ++i) SALIUS_RETURN_IF_ERROR(Prepare(i));
  std::latch start(static_cast<ptrdiff_t>(writers_) + 1);
  std::vector<Samples> samples(writers_);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < writers_; ++i) {
    threads.emplace_back([this, i, &samples, &start, length_ns] {
      start.arrive_and_wait();
      Run(i, Now() + length_ns, samples[i]);
    });
  }
  start.arrive_and_wait();
  const int64_t begin = Now();
  for (std::thread& thread : threads) thread.join();
  const int64_t elapsed = Now() - begin;

  std::vector<uint64_t> all;
  std::vector<double> counts;
  for (const Samples& one : samples) {
    SALIUS_RETURN_IF_ERROR(one.status);
    all.insert(all.end(), one.ns.begin(), one.ns.end());
    counts.push_back(static_cast<double>(one.ns.size()));
  }
  LatencySummary summary = Summarize(std::move(all), elapsed);
  if (!counts.empty()) summary.slowest_writer = *std::min_element(counts.begin(), counts.end());
  summary.median_writer = Median(std::move(counts));
  return summary;
}

absl::StatusOr<std::unique_ptr<FileTarget>> FileTarget::Make(const std::string& directory,
                                                             Plan plan) {
  plan.span = std::max(plan.size, plan.span / plan.size * plan.size);
  std::unique_ptr<FileTarget> target(new FileTarget(plan));
  for (File& file : target->files_) {
    const std::string path = absl::StrCat(directory, "/.salius-bench.", SecureRandom64());
    const int flags = O_RDWR | O_CREAT | O_EXCL | (plan.o_sync() ? O_SYNC : 0);
    SALIUS_ASSIGN_OR_RETURN(file.fd, OpenAt(AT_FDCWD, path, flags, 0600));
    file.path = path;
    file.data.assign(plan.size, 'x');
    if (!plan.append) SALIUS_RETURN_IF_ERROR(target->Fill(file));
    if (plan.read) SALIUS_RETURN_IF_ERROR(target->ReadIn(file));
  }
  return target;
}

FileTarget::~FileTarget() {
  for (const File& file : files_) {
    if (!file.path.empty()) unlink(file.path.c_str());
  }
}

absl::Status FileTarget::Fill(File& file) const {
  const std::vector<uint8_t> fill(kFillBytes, 'f');
  for (uint64_t at = 0; at < plan_.span; at += fill.size()) {
    const size_t bytes = std::min<uint64_t>(fill.size(), plan_.span - at);
    SALIUS_RETURN_IF_ERROR(PwriteFull(file.fd.get(), absl::MakeConstSpan(fill).first(bytes), at));
  }
  // Without O_SYNC: the wait for write-back is no part of a round.
  if (fdatasync(file.fd.get()) != 0) return ErrnoStatus(errno, "fdatasync");
  return absl::OkStatus();
}

absl::Status FileTarget::ReadIn(File& file) const {
  const int error = posix_fadvise(file.fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (error != 0) return ErrnoStatus(error, "fadvise");
  std::vector<uint8_t> data(plan_.size);
  for (uint64_t at = 0; at < plan_.span; at += plan_.size) {
    SALIUS_RETURN_IF_ERROR(
        PreadFull(file.fd.get(), data.data(), data.size(), static_cast<int64_t>(at)).status());
  }
  return absl::OkStatus();
}

absl::Status FileTarget::Prepare(size_t writer) {
  if (!plan_.append) return absl::OkStatus();
  files_[writer].position = 0;
  if (ftruncate(files_[writer].fd.get(), 0) != 0) return ErrnoStatus(errno, "truncate");
  return absl::OkStatus();
}

absl::Status FileTarget::Operate(size_t writer) {
  File& file = files_[writer];
  for (uint64_t i = 0; i < std::max<uint64_t>(plan_.fsync_every, 1); ++i) {
    const off_t at = static_cast<off_t>(file.position);
    const ssize_t done = plan_.read ? pread(file.fd.get(), file.data.data(), file.data.size(), at)
                                    : pwrite(file.fd.get(), file.data.data(), file.data.size(), at);
    if (done < 0) return ErrnoStatus(errno, plan_.read ? "read" : "write");
    if (done != static_cast<ssize_t>(plan_.size)) return absl::InternalError("short transfer");
    file.position += plan_.size;
    if (!plan_.append && file.position >= plan_.span) file.position = 0;
  }
  if (plan_.fsync_every > 0 && fdatasync(file.fd.get()) != 0) {
    return ErrnoStatus(errno, "fdatasync");
  }
  return absl::OkStatus();
}

}  // namespace salius::cli

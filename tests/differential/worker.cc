#include "tests/differential/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "tests/differential/known.h"

namespace salius::differential {
namespace {

constexpr size_t kRemembered = 8192;  // operations, for a report
constexpr size_t kReported = 30;      // the last ones
constexpr size_t kReportedSame = 60;  // those with a name of the one that differs
constexpr uint64_t kCompareEvery = 300;

std::string LastName(std::string path) {
  while (!path.empty() && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

bool Changes(Kind kind) {
  return kind == Kind::kMakeDir || kind == Kind::kUnlink || kind == Kind::kRename ||
         kind == Kind::kChmod || kind == Kind::kPwrite || kind == Kind::kSetXattr;
}

bool UsesSlotOnly(const Operation& o) {
  switch (o.kind) {
    case Kind::kClose:
    case Kind::kCloseDir:
    case Kind::kSyncDir:
    case Kind::kListSome:
    case Kind::kListAgain:
      return true;
    default:
      return false;
  }
}

void Check(long returned, const char* what) {
  if (returned == 0) return;
  perror(what);
  exit(2);
}

// Holds the lock of the shared tree; without one nothing.
class PairLock {
 public:
  explicit PairLock(pthread_mutex_t* mutex) : mutex_(mutex) {
    if (mutex_ != nullptr) pthread_mutex_lock(mutex_);
  }
  ~PairLock() {
    if (mutex_ != nullptr) pthread_mutex_unlock(mutex_);
  }
  PairLock(const PairLock&) = delete;
  PairLock& operator=(const PairLock&) = delete;

 private:
  pthread_mutex_t* const mutex_;
};

}  // namespace

Worker::Worker(const Task& task, Shared& shared)
    : task_(task),
      shared_(shared),
      mount_(task.mount, task.backing),
      bare_(task.bare),
      drawer_(task.seed, !task.shared_tree, task.profile),
      looks_(task.times, task.since),
      trees_(looks_) {}

// The threads of this process are one, so the calls of the kernel do.
void Worker::Become(int number) {
  if (number == identity_) return;
  const uid_t same = static_cast<uid_t>(-1);
  if (identity_ != 0) Check(syscall(SYS_setresuid, same, 0, same), "setresuid");
  const Identity& identity = IdentityOf(number);
  Check(syscall(SYS_setgroups, identity.groups.size(), identity.groups.data()), "setgroups");
  Check(syscall(SYS_setresgid, same, identity.gid, same), "setresgid");
  if (number != 0) Check(syscall(SYS_setresuid, same, identity.uid, same), "setresuid");
  identity_ = number;
}

bool Worker::Run() {
  while (number_ < task_.operations && !shared_.stop.load()) {
    ++number_;
    const Operation operation = drawer_.Draw();
    Difference found;
    {
      const PairLock lock(task_.shared_tree ? &shared_.pair : nullptr);
      if (shared_.stop.load()) break;
      looks_.NoteOperation(number_);
      found = Step(operation);
      if (found) shared_.stop.store(true);
    }
    if (found) {
      Report(operation, *found);
      return false;
    }
  }
  shared_.unclear_times += looks_.unclear_times();
  shared_.late_ctimes += looks_.late_ctimes();
  return true;
}

Worker::Difference Worker::Step(const Operation& drawn) {
  const Operation o = Comparable(drawn, bare_);
  NoteTouched(o);
  if (o.kind == Kind::kListSome) return ListSome(o);
  if (o.kind == Kind::kListAgain) return ListAgain(o);
  const ExchangedObjects exchanged(o, mount_, bare_);
  umask(o.mask);
  Become(o.caller);
  const bool planted = Changes(o.kind) && task_.plant != 0 && changes_ + 1 == task_.plant;
  Result mount;
  if (!planted) mount = DoInMount(o);
  const Result bare = bare_.Do(o);
  if (planted) mount = bare;
  Become(0);
  if (Changes(o.kind) && bare.error == 0) ++changes_;
  Count(o, bare);
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  done_.push_back({number_, o, mount, bare, now});
  if (done_.size() > kRemembered) done_.pop_front();
  if (mount != bare && !IsKnown(o, mount, bare)) {
    return "results: mount " + TextOf(mount) + ", bare " + TextOf(bare);
  }
  if (o.kind == Kind::kOpenDir || o.kind == Kind::kCloseDir) listings_[o.slot] = Listing();
  if (bare.error == 0) {
    exchanged.Touch();
    if (MakesName(o.kind)) drawer_.NoteMade(o.path, o.kind == Kind::kMakeDir);
    if (o.kind == Kind::kRename || o.kind == Kind::kLink) {
      struct stat st;
      const bool directory =
          fstatat(bare_.BaseOf(o.other), o.other.text.c_str(), &st, 0) == 0 && S_ISDIR(st.st_mode);
      drawer_.NoteMade(o.other, directory);
    }
  }
  if (bare.error == ENOENT || bare.error == ENOTDIR) drawer_.NoteMissing(o.path);
  if (Difference found = Look(o)) return found;
  if (number_ % kCompareEvery == 0) return CompareSome();
  return std::nullopt;
}

Result Worker::DoInMount(const Operation& o) {
  const auto now_ns = [] {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1'000'000'000 + now.tv_nsec;
  };
  const int64_t began = now_ns();
  Result result = mount_.Do(o);
  if (now_ns() - began >= kSlowNs) {
    shared_.slow[static_cast<size_t>(o.kind)].fetch_add(1, std::memory_order_relaxed);
  }
  return result;
}

void Worker::Count(const Operation& operation, const Result& result) {
  shared_.done.fetch_add(1, std::memory_order_relaxed);
  const size_t kind = static_cast<size_t>(operation.kind);
  shared_.tried[kind].fetch_add(1, std::memory_order_relaxed);
  if (result.error == 0) shared_.succeeded[kind].fetch_add(1, std::memory_order_relaxed);
}

Worker::Difference Worker::LookAt(const Path& path) {
  const int mount = mount_.BaseOf(path);
  const int bare = bare_.BaseOf(path);
  if (bare < 0 || path.text.empty()) return std::nullopt;
  const bool force = drawer_.random().Chance(25);
  const Subject subject = {mount, bare, path.text};
  if (Difference found = looks_.Compare(subject, force)) return "\"" + path.text + "\": " + *found;
  if (!drawer_.random().Chance(5)) return std::nullopt;
  Difference found = Looks::CompareXattrs(subject);
  if (found) found = "\"" + path.text + "\": " + *found;
  return found;
}

Worker::Difference Worker::LookAtFile(int slot) {
  if (bare_.file(slot) < 0) return std::nullopt;
  Difference found =
      looks_.Compare({mount_.file(slot), bare_.file(slot), ""}, drawer_.random().Chance(25));
  if (found) found = "open file " + std::to_string(slot) + ": " + *found;
  return found;
}

Worker::Difference Worker::Look(const Operation& o) {
  Random& random = drawer_.random();
  if (o.slot < kFiles && (o.kind == Kind::kFstat || random.Chance(25))) {
    if (Difference found = LookAtFile(o.slot)) return found;
  }
  if (UsesSlotOnly(o)) return std::nullopt;
  if (random.Chance(50)) {
    if (Difference found = LookAt(o.path)) return found;
  }
  if (random.Chance(25)) {
    if (Difference found = LookAt({o.path.base, ParentOf(o.path.text)})) return found;
  }
  if (o.kind != Kind::kRename && o.kind != Kind::kLink) return std::nullopt;
  if (random.Chance(50)) {
    if (Difference found = LookAt(o.other)) return found;
  }
  if (random.Chance(25)) return LookAt({o.other.base, ParentOf(o.other.text)});
  return std::nullopt;
}

Worker::Difference Worker::CompareSome() {
  const Path path = drawer_.DrawDirectory();
  int fds[2];
  const Side* const sides[2] = {&mount_, &bare_};
  for (int i = 0; i < 2; ++i) {
    fds[i] = openat(sides[i]->BaseOf(path), path.text.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  }
  Difference found;
  if ((fds[0] < 0) != (fds[1] < 0)) {
    found = "only one side opens the directory";
  } else if (fds[1] >= 0) {
    found = trees_.CompareDirectory(fds[0], fds[1], drawer_.random().Chance(30));
  }
  for (const int fd : fds) close(fd);
  if (found) found = "directory \"" + path.text + "\": " + *found;
  return found;
}

void Worker::NoteTouched(const Operation& o) {
  for (Listing& listing : listings_) {
    if (!listing.begun) continue;
    listing.touched.insert(LastName(o.path.text));
    listing.touched.insert(LastName(o.other.text));
  }
}

std::set<std::string> Worker::NamesIn(int fd) const {
  const int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  std::map<std::string, ListedEntry> entries;
  ListDirectory(again, &entries);
  close(again);
  std::set<std::string> names;
  for (const auto& [name, entry] : entries) names.insert(name);
  return names;
}

Worker::Difference Worker::ListSome(const Operation& o) {
  Listing& listing = listings_[o.slot];
  const int fds[2] = {mount_.directory(o.slot), bare_.directory(o.slot)};
  if (fds[1] < 0) return std::nullopt;
  if (!listing.begun) {
    listing = Listing();
    listing.begun = true;
    listing.before = NamesIn(fds[1]);
    for (const int fd : fds) lseek(fd, 0, SEEK_SET);
  }
  int errors[2] = {0, 0};
  for (int side = 0; side < 2; ++side) {
    std::vector<ListedEntry>& entries = listing.entries[side];
    const size_t had = entries.size();
    if (!ReadEntries(fds[side], static_cast<size_t>(o.length), &entries)) errors[side] = errno;
    listing.ended[side] = listing.ended[side] || entries.size() == had;
  }
  Count(o, {.error = errors[1]});
  if (errors[0] != errors[1]) {
    return std::string("listing: mount ") + strerrorname_np(errors[0]) + ", bare " +
           strerrorname_np(errors[1]);
  }
  if (errors[1] != 0) listing = Listing();
  if (!listing.ended[0] || !listing.ended[1]) return std::nullopt;
  Difference found;
  for (int side = 0; side < 2 && !found; ++side) {
    found = JudgeListing(o.slot, side, listing.entries[side].size(), {});
  }
  listing = Listing();
  return found;
}

Worker::Difference Worker::ListAgain(const Operation& o) {
  Listing& listing = listings_[o.slot];
  const int fds[2] = {mount_.directory(o.slot), bare_.directory(o.slot)};
  if (fds[1] < 0 || !listing.begun) return std::nullopt;
  Count(o, {});
  Difference found;
  struct stat st;
  const bool removed = fstat(fds[1], &st) == 0 && st.st_nlink == 0;
  for (int side = 0; side < 2 && !found && !removed; ++side) {
    const std::vector<ListedEntry>& entries = listing.entries[side];
    if (entries.empty()) continue;
    const size_t kept = 1 + static_cast<size_t>(o.offset) % entries.size();
    std::vector<ListedEntry> again;
    lseek(fds[side], entries[kept - 1].next, SEEK_SET);
    for (size_t had = SIZE_MAX; had != again.size();) {
      had = again.size();
      if (!ReadEntries(fds[side], static_cast<size_t>(o.length), &again)) {
        found = std::string("listing from an earlier offset: ") + strerrorname_np(errno);
        break;
      }
    }
    if (!found) found = JudgeListing(o.slot, side, kept, again);
  }
  listing = Listing();
  return found;
}

// Names that were there from begin to end, untouched, are listed once. A name that was there at no
// time is not listed.
Worker::Difference Worker::JudgeListing(int slot, int side, size_t kept,
                                        const std::vector<ListedEntry>& again) {
  const Listing& listing = listings_[slot];
  const std::set<std::string> after = NamesIn(bare_.directory(slot));
  std::map<std::string, int> listed;
  for (size_t i = 0; i < kept; ++i) ++listed[listing.entries[side][i].name];
  for (const ListedEntry& entry : again) ++listed[entry.name];
  const std::string where = std::string(side == 0 ? "mount" : "bare") + ", listing of slot " +
                            std::to_string(slot) + ": \"";
  for (const std::string& name : listing.before) {
    if (!after.contains(name) || listing.touched.contains(name)) continue;
    if (listed[name] != 1)
      return where + name + "\" comes " + std::to_string(listed[name]) + " times";
  }
  for (const auto& [name, times] : listed) {
    if (times == 0 || name == "." || name == ".." || listing.before.contains(name)) continue;
    if (!after.contains(name) && !listing.touched.contains(name)) {
      return where + name + "\" was never there";
    }
  }
  return std::nullopt;
}

void Worker::Report(const Operation& operation, const std::string& difference) const {
  std::string text = "DIFFERENCE: " + task_.name + ", seed " + std::to_string(task_.seed) +
                     ", operation " + std::to_string(number_) + ": " + TextOf(operation) + "\n  " +
                     difference + "\n";
  const auto line = [](const Done& done) {
    return "  " + std::to_string(done.number) + "  " + TextOf(done.operation) + "  -> " +
           TextOf(done.bare) + " at " + TextOf(done.ended) +
           (done.mount != done.bare ? ", mount " + TextOf(done.mount) : "") + "\n";
  };
  const std::string names[2] = {LastName(operation.path.text), LastName(operation.other.text)};
  std::vector<const Done*> same;
  for (const Done& done : done_) {
    const auto has = [&](const Path& path) {
      const std::string last = LastName(path.text);
      return !last.empty() && (last == names[0] || last == names[1]);
    };
    const bool same_file = done.operation.slot == operation.slot &&
                           (UsesFile(done.operation.kind) || done.operation.kind == Kind::kOpen);
    if (same_file || has(done.operation.path) || has(done.operation.other)) same.push_back(&done);
  }
  text += "operations before, with the same last names or file:\n";
  const size_t skipped = same.size() > kReportedSame ? same.size() - kReportedSame : 0;
  for (size_t i = skipped; i < same.size(); ++i) text += line(*same[i]);
  text += "the last operations:\n";
  const size_t first = done_.size() > kReported ? done_.size() - kReported : 0;
  for (size_t i = first; i < done_.size(); ++i) text += line(done_[i]);
  if (FILE* const log = task_.log.empty() ? nullptr : fopen(task_.log.c_str(), "w")) {
    for (const Done& done : done_) fputs(line(done).c_str(), log);
    fclose(log);
  }
  // One write: other processes report too.
  fflush(stdout);
  static_cast<void>(!write(STDOUT_FILENO, text.data(), text.size()));
}

}  // namespace salius::differential

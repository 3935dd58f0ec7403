// The differential test of whole trees: the same random operations on a mount and on a bare file
// system of the same kind; every errno, listing and stat is compared.
//
//   differential [OPTIONS] MOUNT BARE      runs operations below both directories
//   differential --stamps N MOUNT      N writers and N readers of one file at the same time (stamps.h);
//                                      takes --seed, --operations, --backing and --plant
//   differential --compare SINCE MOUNT BARE    compares two trees at rest; SINCE: when (in seconds)
//                                              the operations began that made them
//
//   --seed N         the run's choices
//   --operations N   of all processes together
//   --own N          processes with a tree of their own
//   --shared N       processes that share one tree; a lock keeps each pair of operations together
//   --late-ctime     the mount's ctime may change once more without an operation (TimeRule)
//   --data           mostly operations on data, of few files; no times are compared
//   --backing DIR    of the mount: with --data its files' pages are dropped from memory as well
//   --log DIR        after a difference a file there has the process's last 8192 operations
//   --plant N        control: the mount's side leaves out the N-th change of each process
//
// Needs root. Exit status: 0 nothing differs, 1 something does (it is printed), 2 wrong usage.
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "tests/differential/looks.h"
#include "tests/differential/operation.h"
#include "tests/differential/stamps.h"
#include "tests/differential/tree.h"
#include "tests/differential/worker.h"

namespace salius::differential {
namespace {

struct Options {
  uint64_t seed = 1;
  uint64_t operations = 10'000;
  uint64_t own = 2;
  uint64_t shared = 2;
  uint64_t plant = 0;
  TimeRule times = TimeRule::kExact;
  std::optional<int64_t> compare_since;
  std::string log;
  std::string backing;
  uint64_t stamp_writers = 0;
  Profile profile = Profile::kAll;
  std::string mount;
  std::string bare;
};

[[noreturn]] void Fail(const std::string& what) {
  fprintf(stderr, "differential: %s: %s\n", what.c_str(), strerror(errno));
  exit(2);
}

std::optional<Options> Parse(int argc, char** argv) {
  static const option kOptions[] = {{"seed", required_argument, nullptr, 's'},
                                    {"operations", required_argument, nullptr, 'o'},
                                    {"own", required_argument, nullptr, 'w'},
                                    {"shared", required_argument, nullptr, 'h'},
                                    {"plant", required_argument, nullptr, 'p'},
                                    {"late-ctime", no_argument, nullptr, 'l'},
                                    {"compare", required_argument, nullptr, 'c'},
                                    {"log", required_argument, nullptr, 'g'},
                                    {"stamps", required_argument, nullptr, 't'},
                                    {"data", no_argument, nullptr, 'd'},
                                    {"backing", required_argument, nullptr, 'b'},
                                    {}};
  Options options;
  int found;
  while ((found = getopt_long(argc, argv, "", kOptions, nullptr)) != -1) {
    const uint64_t number = optarg == nullptr ? 0 : strtoull(optarg, nullptr, 10);
    switch (found) {
      case 's':
        options.seed = number;
        break;
      case 'o':
        options.operations = number;
        break;
      case 'w':
        options.own = number;
        break;
      case 'h':
        options.shared = number;
        break;
      case 'p':
        options.plant = number;
        break;
      case 'l':
        options.times = TimeRule::kLateCtime;
        break;
      case 't':
        options.stamp_writers = number;
        break;
      case 'd':
        options.profile = Profile::kData;
        options.times = TimeRule::kNone;
        break;
      case 'b':
        options.backing = optarg;
        break;
      case 'g':
        options.log = optarg;
        break;
      case 'c':
        options.compare_since = static_cast<int64_t>(number);
        break;
      default:
        return std::nullopt;
    }
  }
  if (options.stamp_writers > 0 && argc - optind == 1) {
    options.mount = argv[optind];
    return options;
  }
  if (argc - optind != 2 || options.stamp_writers > 0 || options.own + options.shared == 0) return std::nullopt;
  options.mount = argv[optind];
  options.bare = argv[optind + 1];
  return options;
}

// Makes SIDE/NAME/top, where the operations of a process begin. A symbolic link with `..` may lead
// to SIDE/NAME.
std::string MakeTop(const std::string& side, const std::string& name) {
  const std::string outer = side + "/" + name;
  const std::string top = outer + "/top";
  for (const std::string& path : {outer, top}) {
    if (mkdir(path.c_str(), 0777) != 0 || chmod(path.c_str(), 0777) != 0) Fail(path);
  }
  return top;
}

// Compares everything below two directories, without `.salius` in the first.
bool CompareTrees(const std::string& mount, const std::string& bare, int64_t since,
                  const std::string& name) {
  const int fds[2] = {open(mount.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                      open(bare.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (fds[0] < 0 || fds[1] < 0) Fail(fds[0] < 0 ? mount : bare);
  Looks looks(TimeRule::kNone, since);
  Trees trees(looks);
  const std::optional<std::string> found = trees.CompareAll(fds[0], fds[1], ".salius");
  for (const int fd : fds) close(fd);
  if (found)
    printf("DIFFERENCE: %s: the tree at the end: %s\n", name.c_str(), found->c_str());
  else
    printf("%s: %lu objects compared\n", name.c_str(), trees.objects());
  return !found;
}

// Returns memory of all processes to come.
template <typename T>
T& MakeCommon() {
  void* const memory =
      mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) Fail("mmap");
  return *new (memory) T;
}

Shared& MakeShared() {
  auto& shared = MakeCommon<Shared>();
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&shared.pair, &attributes);
  return shared;
}

void PrintCounts(const Shared& shared, uint64_t ms) {
  printf("%lu operations in %lu.%lu s, %lu/s; succeeded of tried:", shared.done.load(), ms / 1000,
         ms % 1000 / 100, shared.done.load() * 1000 / (ms + 1));
  for (size_t kind = 0; kind < static_cast<size_t>(Kind::kKinds); ++kind) {
    if (shared.tried[kind] == 0) continue;
    printf(" %s %lu/%lu", NameOf(static_cast<Kind>(kind)), shared.succeeded[kind].load(),
           shared.tried[kind].load());
  }
  printf("; 3 ms or more in the mount:");
  for (size_t kind = 0; kind < static_cast<size_t>(Kind::kKinds); ++kind) {
    if (shared.slow[kind] == 0) continue;
    printf(" %s %lu", NameOf(static_cast<Kind>(kind)), shared.slow[kind].load());
  }
  printf("; times within one step of the clock: %lu, late ctimes: %lu\n",
         shared.unclear_times.load(), shared.late_ctimes.load());
}

uint64_t NowMs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1'000'000;
}

// Runs one process per task with `run`; returns whether all found nothing.
template <typename AnyTask>
bool RunAll(const std::vector<AnyTask>& tasks, std::atomic<bool>& stop, auto run) {
  std::vector<pid_t> children;
  fflush(stdout);
  for (const AnyTask& task : tasks) {
    const pid_t child = fork();
    if (child < 0) Fail("fork");
    if (child == 0) _exit(run(task) ? 0 : 1);
    children.push_back(child);
  }
  bool good = true;
  for (const pid_t child : children) {
    int status;
    if (waitpid(child, &status, 0) != child) Fail("waitpid");
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (WIFSIGNALED(status)) printf("a process was killed by signal %d\n", WTERMSIG(status));
    if (!good) stop.store(true);
  }
  return good;
}

bool RunAllStamps(const Options& options) {
  Stamps& stamps = MakeCommon<Stamps>();
  const std::string path = options.mount + "/stamps";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const std::string zeros(kStampWords * sizeof(uint64_t), '\0');
  if (fd < 0 || pwrite(fd, zeros.data(), zeros.size(), 0) != static_cast<ssize_t>(zeros.size()) ||
      fsync(fd) != 0) {
    Fail(path);
  }
  close(fd);
  std::vector<StampTask> tasks(2 * options.stamp_writers);
  for (uint64_t i = 0; i < tasks.size(); ++i) {
    tasks[i] = {path,
                options.backing.empty() ? "" : options.backing + "/stamps",
                options.seed,
                options.stamp_writers,
                i,
                options.operations / tasks.size(),
                options.plant};
  }
  const uint64_t began = NowMs();
  const bool good = RunAll(tasks, stamps.stop,
                           [&](const StampTask& task) { return RunStamps(task, stamps); });
  printf("%lu writes and %lu reads in %lu ms\n", stamps.writes.load(), stamps.reads.load(),
         NowMs() - began);
  return good;
}

int Main(int argc, char** argv) {
  const std::optional<Options> parsed = Parse(argc, argv);
  if (!parsed) {
    fprintf(stderr, "usage: differential [OPTIONS] MOUNT BARE\n");
    return 2;
  }
  const Options& options = *parsed;
  umask(0);
  signal(SIGPIPE, SIG_IGN);  // of FIFOs: the call says EPIPE
  if (options.compare_since) {
    return CompareTrees(options.mount, options.bare, *options.compare_since, "at rest") ? 0 : 1;
  }
  if (options.stamp_writers > 0) return RunAllStamps(options) ? 0 : 1;
  const int64_t since = time(nullptr);
  Shared& shared = MakeShared();
  std::vector<Task> tasks;
  for (uint64_t i = 0; i < options.own + (options.shared > 0 ? 1 : 0); ++i) {
    const bool own = i < options.own;
    Task task;
    task.name = own ? "own" + std::to_string(i) : "shared";
    task.mount = MakeTop(options.mount, task.name);
    task.bare = MakeTop(options.bare, task.name);
    task.since = since;
    task.operations = options.operations / (options.own + options.shared);
    task.shared_tree = !own;
    task.times = options.times;
    task.profile = options.profile;
    if (!options.backing.empty()) task.backing = options.backing + "/" + task.name + "/top";
    task.plant = options.plant;
    for (uint64_t process = 0; process < (own ? 1 : options.shared); ++process) {
      if (!options.log.empty()) {
        task.log = options.log + "/" + task.name + "-" + std::to_string(process) + ".log";
      }
      task.seed = options.seed * 1000 + tasks.size();
      tasks.push_back(task);
    }
  }
  const uint64_t began = NowMs();
  bool good = RunAll(tasks, shared.stop,
                     [&](const Task& task) { return Worker(task, shared).Run(); });
  PrintCounts(shared, NowMs() - began);
  std::string last;
  for (const Task& task : tasks) {
    if (!good || task.name == last) continue;
    last = task.name;
    good = CompareTrees(options.mount + "/" + last, options.bare + "/" + last, since, last);
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace salius::differential

int main(int argc, char** argv) { return salius::differential::Main(argc, argv); }

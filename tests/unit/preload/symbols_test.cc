// Every call that can change or sync a file is interposed, or needs nothing of the library; every
// interposed function is called by the subject under the real dynamic linker; and calls that fail
// or are cancelled do so with the library as without it.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "tests/unit/preload/subjects.h"

namespace salius::preload {
namespace {

using Names = std::set<std::string>;

// The calls of a program that matter here.
const Names& Calls() {
  static const Names calls = {
      // Opening.
      "open", "open64", "openat", "openat64", "creat", "creat64", "__open_2", "__open64_2",
      "__openat_2", "__openat64_2", "openat2", "fopen", "fopen64", "freopen", "freopen64", "fdopen",
      "mkstemp", "mkstemp64", "mkstemps", "mkstemps64", "mkostemp", "mkostemp64", "mkostemps",
      "mkostemps64", "tmpfile", "tmpfile64",
      // Descriptors.
      "dup", "dup2", "dup3", "fcntl", "fcntl64", "close", "closefrom", "close_range", "ioctl",
      // Writing and syncing.
      "write", "pwrite", "pwrite64", "writev", "pwritev", "pwritev64", "pwritev2", "pwritev64v2",
      "dprintf", "vdprintf", "__dprintf_chk", "__vdprintf_chk", "backtrace_symbols_fd", "fflush",
      "fputs", "fwrite", "fclose", "pclose", "fsync", "fdatasync", "sync", "syncfs",
      "sync_file_range", "msync", "mmap", "mmap64", "munmap", "mremap", "mprotect", "pkey_mprotect",
      "truncate",
      "truncate64", "ftruncate", "ftruncate64", "fallocate", "fallocate64", "posix_fallocate",
      "posix_fallocate64", "sendfile", "sendfile64", "copy_file_range", "splice", "aio_write",
      "aio_write64", "aio_fsync", "aio_fsync64", "aio_read", "aio_error", "aio_return",
      "aio_suspend", "aio_cancel", "lio_listio", "lio_listio64", "io_setup", "io_submit",
      // Pipes and sockets.
      "pipe", "pipe2", "socketpair", "send", "sendto", "sendmsg", "sendmmsg", "connect", "shutdown",
      "tee", "vmsplice",
      // Names and attributes.
      "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "unlink",
      "unlinkat", "remove", "mkdir", "mkdirat", "rmdir", "chmod", "fchmod", "fchmodat", "lchmod",
      "chown", "fchown", "fchownat", "lchown", "futimens", "setxattr", "fsetxattr", "lsetxattr",
      "removexattr", "fremovexattr", "lremovexattr",
      // Processes and signals.
      "fork", "vfork", "_Fork", "clone", "daemon", "login_tty", "posix_spawn", "posix_spawnp",
      "posix_spawn_file_actions_addopen",
      "execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "execveat", "fexecve",
      "system", "popen", "_exit", "syscall", "sigaction", "signal", "bsd_signal", "ssignal",
      "sysv_signal", "__sysv_signal", "sigset"};
  return calls;
}

// Those that are not interposed, and why.
const std::map<std::string, std::string>& NotInterposed() {
  static const std::map<std::string, std::string> reasons = {
      {"openat2", "glibc 2.36 has no such function; syscall(2) is seen"},
      {"fflush", "writes inside the C library: the stream's file is uncovered"},
      {"fputs", "as fflush"},
      {"fwrite", "as fflush"},
      {"sync_file_range", "promises nothing about a power cut"},
      {"aio_read", "changes no file"},
      {"aio_error", "changes no file"},
      {"aio_return", "changes no file"},
      {"aio_suspend", "changes no file"},
      {"aio_cancel", "a request on the volume is complete when it was made"},
      {"symlink", "no new name of a file that was written"},
      {"symlinkat", "as symlink"},
      {"unlink", "records of a file that is gone are skipped"},
      {"unlinkat", "as unlink"},
      {"remove", "as unlink"},
      {"mkdir", "a directory has no data; its name is synced by the program"},
      {"mkdirat", "as mkdir"},
      {"rmdir", "as mkdir"},
      {"fork", "a handler of pthread_atfork(3) sees it"},
      {"_exit", "the kernel shows the end of a process"}};
  return reasons;
}

std::string OutputOf(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> part;
  for (size_t got; (got = fread(part.data(), 1, part.size(), pipe)) > 0;) {
    text.append(part.data(), got);
  }
  pclose(pipe);
  return text;
}

// Returns the functions that the library defines for programs.
Names Exported(const std::string& library) {
  std::istringstream symbols(
      OutputOf("readelf --dyn-syms --wide " + SubjectRun::PathOf(library)));
  Names names;
  for (std::string line; std::getline(symbols, line);) {
    std::istringstream words(line);
    std::string number, value, size, type, bind, visibility, section, name;
    words >> number >> value >> size >> type >> bind >> visibility >> section >> name;
    if (type == "FUNC" && bind != "LOCAL" && section != "UND") names.insert(name);
  }
  return names;
}

TEST(SymbolsTest, EachCallIsInterposedOrHasAReason) {
  const Names exported = Exported("../../../client/preload/libsalius_preload.so");
  EXPECT_EQ(exported, Exported("librecording.so"));
  for (const std::string& call : Calls()) {
    EXPECT_NE(exported.count(call), NotInterposed().count(call)) << call;
  }
  for (const std::string& name : exported) {
    EXPECT_EQ(Calls().count(name), 1u) << name << ": missing in the list of this test";
  }
}

// The dynamic linker says itself which functions of the subject are those of the library.
TEST(SymbolsTest, SubjectCallsEachInterposedFunction) {
  SubjectRun run;
  run.Set("LD_DEBUG=bindings");
  run.Set("LD_BIND_NOW=1");
  EXPECT_EQ(run.Run("subject", {"sync_errors"}), 0);
  const std::string messages = run.Messages();
  for (const std::string& name : Exported("librecording.so")) {
    EXPECT_NE(messages.find("/subject [0] to " + SubjectRun::PathOf("librecording.so") +
                            " [0]: normal symbol `" + name + "'"),
              std::string::npos)
        << name;
  }
}

// The case prints what its calls return.
class SameTextTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Cases, SameTextTest,
                         testing::Values("error_results", "cancellation_points"));

TEST_P(SameTextTest, WithAndWithoutTheLibrary) {
  SubjectRun with, without;
  without.Set("LD_PRELOAD=");
  EXPECT_EQ(with.Run("subject", {GetParam()}), 0) << with.Messages();
  EXPECT_EQ(without.Run("subject", {GetParam()}), 0) << without.Messages();
  EXPECT_FALSE(with.Record().empty());
  EXPECT_EQ(with.Messages(), without.Messages());
}

// The case requires what its calls return, so it must end well without the library too.
class SameResultsTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, SameResultsTest,
    testing::Values("open_family", "open_fortified", "open_by_number", "open_errors",
                    "open_for_reading", "open_truncates", "open_truncates_unseen",
                    "open_outside", "open_temporary",
                    "sync_flag", "data_sync_flag", "sync_flag_keeps_locks", "stdio_open",
                    "stdio_temporary", "standard_output", "write_family", "write_by_number",
                    "write_synchronous", "write_append", "write_errors", "write_others",
                    "truncations", "allocations", "copies", "copy_synchronous", "prints",
                    "requests", "change_synchronous", "map_pkey", "map_moved_many",
                    "print_synchronous", "descriptor_received", "sync_family", "sync_errors",
                    "map_writable",
                    "map_harmless", "map_fails", "map_made_writable", "map_moved", "dup_family",
                    "dup_errors", "number_is_used_again", "names", "attributes",
                    "attributes_by_number", "aio_calls", "aio_notifies", "aio_lists", "fork_family", "clone_calls", "vfork_child",
                    "exec_errors", "daemon_style", "terminal", "handler_writes", "interrupted",
                    "threads", "cancelled"));

TEST_P(SameResultsTest, WithoutTheLibrary) {
  SubjectRun run;
  run.Set("LD_PRELOAD=");
  EXPECT_EQ(run.Run("subject", {GetParam()}), 0) << run.Messages();
  EXPECT_TRUE(run.Record().empty());
}

}  // namespace
}  // namespace salius::preload

// Calls each interposed function from a C program under the real dynamic linker, and compares the
// calls that reach the files of the volume.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "tests/unit/preload/subjects.h"

namespace salius::preload {
namespace {

using Lines = std::vector<std::string>;

struct Case {
  std::string name;
  Lines record;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class SubjectTest : public testing::TestWithParam<Case> {};

TEST_P(SubjectTest, CallsReachTheFiles) {
  SubjectRun run;
  EXPECT_EQ(run.Run("subject", {GetParam().name}), 0) << run.Messages();
  EXPECT_EQ(run.Record(), GetParam().record);
}

// Repeats `lines` `count` times.
Lines Times(int count, const Lines& lines) {
  Lines all;
  for (int i = 0; i < count; ++i) all.insert(all.end(), lines.begin(), lines.end());
  return all;
}

// The lines of `count` changes of `file` that are not logged.
Lines Unseen(const std::string& file, const std::string& reason, int count = 1) {
  return Times(count, {"begin " + file + " " + reason, "end " + file + " " + reason});
}

Lines Join(std::initializer_list<Lines> parts) {
  Lines all;
  for (const Lines& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Output, SubjectTest,
                         testing::Values(Case{"output_pipes", {}}, Case{"output_sockets", {}}));

INSTANTIATE_TEST_SUITE_P(
    Open, SubjectTest,
    testing::Values(
        Case{"open_family",
             {"open open", "write open 0 1 x", "open open64 made", "write open64 0 1 x",
              "open openat", "write openat 0 1 x", "open openat64", "write openat64 0 1 x",
              "open creat", "truncate creat 0", "write creat 0 1 x", "open creat64",
              "truncate creat64 0", "write creat64 0 1 x"}},
        Case{"open_fortified",
             Join({{"open f", "truncate f 0"}, Times(4, {"open f", "write f 0 1 x"})})},
        Case{"open_by_number",
             {"open open", "write open 0 1 x", "open openat", "write openat 0 1 x", "open creat",
              "truncate creat 0", "write creat 0 1 x", "open openat2 made", "write openat2 0 1 x",
              "begin openat2 position", "end openat2 position"}},
        Case{"open_errors", {"open f", "truncate f 0", "open f", "write f 0 1 x"}},
        Case{"open_for_reading", {"open f", "truncate f 0", "open f", "sync f full"}},
        Case{"open_truncates", Times(2, {"open f", "truncate f 0", "write f 0 1 x"})},
        Case{"open_truncates_known", Times(9, {"open f", "truncate f 0", "write f 0 1 x"})},
        Case{"open_truncates_unseen",
             Join({{"open f", "truncate f 0", "write f 0 1 x"},
                   {"begin f position", "open f", "truncate f 0", "end f position"},
                   {"begin f position", "open f", "truncate f 0", "uncover f stdio",
                    "end f position", "uncover f stdio"},
                   Times(3, {"begin f position", "open f", "truncate f 0", "end f position",
                             "write f 0 1 x"}),
                   {"begin f position", "end f position"}})},
        Case{"open_outside", {}},
        Case{"open_temporary",
             {"open one-* made", "write one-* 0 1 x", "open two-* made", "write two-* 0 1 x",
              "open three-*.c made", "write three-*.c 0 1 x", "open four-*.c made",
              "write four-*.c 0 1 x", "open five-* made", "write five-* 0 1 x", "open six-* made",
              "write six-* 0 1 x", "open seven-*.c made", "write seven-*.c 0 1 x",
              "open eight-*.c made", "write eight-*.c 0 1 x"}},
        Case{"sync_flag",
             {"open f", "write f 0 1 a", "sync f full", "write f 1 1 b", "sync f full"}},
        Case{"data_sync_flag", {"open f made", "write f 0 1 a", "sync f data"}},
        Case{"sync_flag_keeps_locks", {"open f", "open f", "write f 0 1 a", "sync f full"}},
        Case{"stdio_open",
             {"open w", "truncate w 0", "uncover w stdio", "uncover w stdio", "sync w full",
              "uncover w stdio", "open a", "uncover a stdio", "open b made", "uncover b stdio",
              "uncover b stdio", "open d", "uncover d stdio", "uncover d stdio", "open r"}},
        Case{"stdio_temporary", {}},
        Case{"standard_output",
             {"open out", "uncover out stdio", "write out 0 1 x", "uncover out stdio",
              "sync out full"}}));

INSTANTIATE_TEST_SUITE_P(
    Write, SubjectTest,
    testing::Values(Case{"write_family",
                         {"open f", "write f 0 5 hello", "write f 5 5 abcde", "write f 100 2 pw",
                          "write f 200 4 pw64", "write f 300 5 abcde", "write f 400 5 abcde",
                          "write f 500 2 ab", "write f 600 2 ab", "write f 10 2 ab"}},
                    Case{"write_by_number",
                         {"open f", "write f 0 5 hello", "write f 5 5 abcde", "write f 100 2 pw",
                          "write f 300 5 abcde", "write f 500 2 ab"}},
                    Case{"write_synchronous",
                         {"open f", "write f 0 2 ab", "sync f data", "write f 2 2 ab",
                          "sync f full", "write f 4 2 ab"}},
                    Case{"write_append",
                         {"open f", "write f 0 3 one", "write f 3 3 two", "write f 6 5 three",
                          "write f 0 1 O", "write f 11 1 !"}},
                    Case{"write_errors", {"open f", "write f 0 1 x"}},
                    Case{"write_others", {"open f", "write f 0 1 y"}},
                    Case{"truncations",
                         Join({{"open f", "truncate f 10", "truncate f 11"},
                               Unseen("f", "allocate", 2),
                               {"truncate f 14"},
                               Unseen("f", "allocate")})},
                    Case{"truncations_by_path",
                         Join({{"open f"}, Unseen("f", "allocate", 4)})},
                    Case{"allocations", Join({{"open f"}, Unseen("f", "allocate", 5)})},
                    Case{"requests", Join({{"open f", "truncate f 8192"},
                                           Unseen("f", "allocate", 3)})},
                    Case{"change_synchronous",
                         Join({{"open f"},
                               Times(3, Join({Unseen("f", "allocate"), {"sync f full"}})),
                               {"open g"}, Unseen("g", "allocate"), {"sync g full"},
                               Unseen("g", "allocate")})},
                    Case{"copies", Join({{"open f"},
                                         Unseen("f", "copy", 2),
                                         {"open source", "write source 0 5 hello"},
                                         Unseen("f", "copy", 3)})},
                    Case{"copy_synchronous",
                         {"open source", "write source 0 5 hello", "open f", "begin f copy",
                          "end f copy", "sync f full"}},
                    Case{"prints",
                         Join({{"open f", "sync f full"}, Unseen("f", "copy", 5)})},
                    Case{"print_synchronous",
                         Join({{"open f"}, Unseen("f", "copy"), {"sync f full", "open g"},
                               Unseen("g", "copy"), {"sync g full"}})},
                    Case{"descriptor_received",
                         {"open f", "open f", "uncover f foreign", "write f 0 1 x",
                          "sync f full"}}));

INSTANTIATE_TEST_SUITE_P(Sync, SubjectTest,
                         testing::Values(Case{"sync_family",
                                              {"open f", "sync f full", "sync f data", "sync-all",
                                               "sync-all", "sync f full", "sync f data", "sync-all",
                                               "sync-all"}},
                                         Case{"sync_errors", {"open f", "sync f full"}}));

INSTANTIATE_TEST_SUITE_P(
    Map, SubjectTest,
    testing::Values(
        Case{"map_writable",
             {"open f", "truncate f 8192", "open f", "uncover f map", "sync f full", "sync-all"}},
        Case{"map_harmless",
             {"open f", "truncate f 8192", "open f", "open g", "truncate g 8192", "open g"}},
        Case{"map_fails", {"open f", "truncate f 8192", "open f", "write f 0 6 logged"}},
        Case{"map_made_writable",
             {"open f", "truncate f 8192", "open f", "write f 0 6 before", "uncover f map"}},
        Case{"map_moved",
             {"open f", "truncate f 8192", "open f", "uncover f map", "uncover f map"}},
        Case{"map_pkey", {"open f", "truncate f 8192", "open f", "uncover f map", "uncover f map"}},
        Case{"map_is_replaced_while_it_goes",
             {"open f", "truncate f 8192", "open f", "open g", "truncate g 8192", "open g",
              "uncover g map"}},
        Case{"map_does_not_go",
             {"open f", "truncate f 8192", "open f", "uncover f map"}},
        Case{"map_moved_many", {"open f", "truncate f 8192", "open f", "uncover f map"}},
        // 256 maps have room; each later one counts as writable.
        Case{"map_many",
             Join({{"open f", "truncate f 8192", "open f"}, Times(44, {"uncover f map"})})}));

INSTANTIATE_TEST_SUITE_P(
    Close, SubjectTest,
    testing::Values(Case{"dup_family",
                         {"open f", "write f 0 1 1", "write f 1 1 2", "write f 2 1 3",
                          "write f 3 1 4", "write f 4 1 5", "write f 5 1 6"}},
                    Case{"dup_errors", {}},
                    Case{"own_descriptor_is_spared", {"open f", "open g", "write g 0 1 x"}},
                    Case{"number_is_used_again",
                         {"open f", "write f 0 1 1", "open h", "write h 0 1 2"}}));

INSTANTIATE_TEST_SUITE_P(
    Names, SubjectTest,
    testing::Values(
        Case{"names", Join({{"open f"}, Times(6, {"uncover f name"})})},
        Case{"names_of_others", {}},
        Case{"names_across_the_border",
             {"open f", "open #* (deleted)", "uncover #* (deleted) name", "uncover f name",
              "uncover f name", "uncover f name", "uncover f name", "uncover-all no_id"}},
        Case{"attributes", Join({{"open f"}, Times(15, {"uncover f attributes"})})},
        Case{"attributes_by_number", Join({{"open f"}, Times(13, {"uncover f attributes"})})},
        Case{"attributes_by_new_numbers", Join({{"open f"}, Times(6, {"uncover f attributes"})})},
        Case{"attributes_of_a_descriptor", Join({{"open f"}, Times(3, {"uncover f attributes"})})},
        Case{"attributes_of_the_unreadable",
             Join({{"open f"}, Times(6, {"uncover f attributes"}), Times(2, {"uncover f name"})})},
        Case{"attributes_open_nothing", Join({{"open f"}, Times(3, {"uncover f attributes"})})},
        Case{"attributes_of_the_locked", Join({{"open f"}, Times(3, {"uncover f attributes"})})},
        Case{"attributes_in_a_borrower", {"open f", "uncover f attributes", "uncover f name"}}));

INSTANTIATE_TEST_SUITE_P(
    Aio, SubjectTest,
    testing::Values(Case{"aio_calls",
                         {"open f", "write f 10 5 hello", "write f 0 4 wide", "sync f full",
                          "sync f data"}},
                    Case{"aio_notifies", {"open f", "write f 0 5 hello", "write f 0 5 hello"}},
                    Case{"aio_lists", {"open f", "write f 0 3 one", "write f 0 4 wide"}},
                    Case{"kernel_aio_is_refused", {}}));

INSTANTIATE_TEST_SUITE_P(
    Process, SubjectTest,
    testing::Values(
        Case{"fork_family",
             {"open f", "after-fork", "write f 0 5 child", "sync f data", "after-fork",
              "write f 5 5 child", "sync f data", "after-fork", "write f 10 5 child", "sync f data",
              "after-fork", "write f 15 5 child", "sync f data", "write f 20 6 parent",
              "sync f data"}},
        Case{"clone_calls",
             {"open f", "after-fork", "write f 0 5 clone", "begin f signal", "end f signal",
              "write f 10 6 parent"}},
        Case{"clone_calls_of_other_kinds",
             {"open f", "after-fork", "begin f signal", "end f signal", "uncover f signal",
              "uncover f signal", "after-fork", "write f 5 5 child", "after-fork",
              "begin f signal", "end f signal", "uncover f signal", "uncover f signal",
              "after-fork", "write f 15 5 child"}},
        Case{"forked_children_give_locks_back", Times(4, {"after-fork"})},
        Case{"vfork_child", {"open f", "write f 0 6 parent"}},
        Case{"vfork_child_writes", {"open f", "begin f signal", "end f signal"}},
        Case{"vfork_child_writes_elsewhere",
             Join({{"open f"},
                   Unseen("f", "signal"),
                   Unseen("f", "allocate"),
                   Times(2, {"uncover f signal"}),
                   Unseen("f", "signal"),
                   Times(2, {"uncover f signal"}),
                   {"write f 5 6 parent", "sync f data"}})},
        // The descriptor's O_DSYNC is not the kernel's, and yet the next program has it.
        Case{"exec_passes_descriptors",
             {"open f", "open f", "uncover f foreign", "write f 0 9 inherited", "sync f data"}},
        Case{"exec_family", Join({Times(7, {"after-fork", "open after", "write after 0 4 mine"}),
                                  Times(6, {"after-fork", "open after", "write after 0 4 none"})})},
        Case{"spawn_family", Join({{"open after", "write after 0 4 mine"},
                                   Times(3, {"open after", "write after 0 4 none"})})},
        Case{"spawn_cuts",
             Join({{"open f", "write f 0 5 hello"}, Times(4, {"uncover-all position"})})},
        Case{"exec_errors", {"open text", "write text 0 5 hello"}},
        Case{"terminal", {"open f", "uncover f stdio", "after-fork"}},
        Case{"daemon_style",
             {"open f", "uncover f stdio", "after-fork", "after-fork", "open g",
              "write g 0 6 daemon"}}));

INSTANTIATE_TEST_SUITE_P(Threads, SubjectTest,
                         testing::Values(Case{"interrupted", {}},
                                         Case{"cancelled",
                                              {"open f", "write f 0 1 1", "write f 1 1 2"}}));

int Count(const Lines& lines, const std::string& line) {
  int found = 0;
  for (const std::string& one : lines) found += one == line ? 1 : 0;
  return found;
}

TEST(PreloadTest, SyncErrorsReachTheProgram) {
  SubjectRun run;
  run.Set("SALIUS_DIRECT_SYNC=5");
  EXPECT_EQ(run.Run("subject", {"sync_fails"}), 0) << run.Messages();
}

// O_APPEND is looked at under the lock: it may have been set while the write waited.
TEST(PreloadTest, WriteThatWaitedIsLoggedWhereItWent) {
  SubjectRun run;
  run.Set("SALIUS_DIRECT_APPEND=3");
  EXPECT_EQ(run.Run("subject", {"write_becomes_append"}), 0) << run.Messages();
  EXPECT_EQ(run.Record(), (Lines{"open f", "truncate f 5", "write f 5 1 x"}));
}

TEST(PreloadTest, DirectWritesAreUncovered) {
  SubjectRun run;
  const int code = run.Run("subject", {"write_direct"});
  if (code == 77) GTEST_SKIP() << "the file system has no O_DIRECT";
  EXPECT_EQ(code, 0) << run.Messages();
  EXPECT_EQ(run.Record(), (Lines{"open f", "uncover f bulk", "sync f data"}));
}

// A handler never runs between the lock and the unlock of the thread that it interrupts.
TEST(PreloadTest, HandlersWriteAndSync) {
  SubjectRun run;
  EXPECT_EQ(run.Run("subject", {"handler_writes"}), 0) << run.Messages();
  const Lines record = run.Record();
  EXPECT_GE(Count(record, "write f 0 7 handler"), 200);
  EXPECT_GE(Count(record, "sync f full"), 200);
  EXPECT_EQ(Count(record, "uncover f signal") + Count(record, "begin f signal"), 0);
}

TEST(PreloadTest, EachWayToInstallAHandlerIsSeen) {
  for (const char* name :
       {"sigaction", "bsd_signal", "ssignal", "sigset", "sysv_signal", "__sysv_signal"}) {
    SubjectRun run;
    run.Set(std::string("HANDLER=") + name);
    EXPECT_EQ(run.Run("subject", {"handler_of_each_kind"}), 0) << name << run.Messages();
    const Lines record = run.Record();
    EXPECT_GE(Count(record, "write f 0 7 handler"), 1) << name;
    EXPECT_EQ(Count(record, "uncover f signal") + Count(record, "begin f signal"), 0) << name;
  }
}

// A handler of which the library does not know makes the file uncovered when it interrupts.
TEST(PreloadTest, HandlersInstalledUnseenDoNotDeadlock) {
  SubjectRun run;
  EXPECT_EQ(run.Run("subject", {"unseen_handler_writes"}), 0) << run.Messages();
  const Lines record = run.Record();
  const int logged = Count(record, "write f 0 7 handler");
  EXPECT_EQ(Count(record, "begin f signal"), Count(record, "end f signal"));
  EXPECT_GE(logged + Count(record, "end f signal"), 200);
}

struct Move {
  std::string name, at;
  Lines record;
};
void PrintTo(const Move& one, std::ostream* out) { *out << one.name; }

class MoveTest : public testing::TestWithParam<Move> {};

// The bytes are in one of the two files, and no record says in which.
TEST_P(MoveTest, ReplacedDescriptorUncoversBothFiles) {
  SubjectRun run;
  run.Set("SALIUS_DIRECT_MOVE=" + GetParam().at);
  EXPECT_EQ(run.Run("subject", {GetParam().name}), 0) << run.Messages();
  EXPECT_EQ(run.Record(), GetParam().record);
}

INSTANTIATE_TEST_SUITE_P(
    Moved, MoveTest,
    testing::Values(Move{"moved_in_a_write", "lock",
                         {"open f", "open g", "uncover f position", "uncover g position", "open g",
                          "uncover g foreign", "write g 1 1 y"}},
                    Move{"moved_in_a_truncation", "lock",
                         {"open f", "open g", "uncover f position", "uncover g position",
                          "truncate g 6"}},
                    Move{"moved_in_a_look", "open",
                         {"open f", "open g", "open f", "uncover f foreign", "uncover f position",
                          "uncover g position", "write g 1 1 y"}}));

TEST(PreloadTest, ThreadsShareTheTable) {
  SubjectRun run;
  EXPECT_EQ(run.Run("subject", {"threads"}), 0) << run.Messages();
  const Lines record = run.Record();
  int writes = 0;
  for (const std::string& line : record) {
    writes += line.compare(0, 6, "write ") == 0 ? 1 : 0;
    EXPECT_EQ(line.find("BROKEN"), std::string::npos) << line;
  }
  EXPECT_EQ(writes, 8 * 200 * 2);
}

TEST(PreloadTest, AllocatorThatWritesDoesNotDeadlock) {
  SubjectRun run;
  EXPECT_EQ(run.Run("allocator_subject", {}), 0) << run.Messages();
  const Lines record = run.Record();
  EXPECT_GE(Count(record, "sync log data"), 10);
}

}  // namespace
}  // namespace salius::preload

// The programs of a simulated direct volume: what they call, and what they were promised.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/direct/window/file_table.h"
#include "client/direct/window/robust_lock.h"
#include "client/gate/gate.h"
#include "common/check.h"
#include "log/record.h"
#include "tests/sim/direct_sim.h"

namespace salius::sim {
namespace {

constexpr int64_t kUs = 1'000;
constexpr int64_t kMs = 1'000'000;
constexpr size_t kMostFiles = 12;

}  // namespace

void DirectSim::StartProgram() {
  Program& program = *programs_.emplace_back(std::make_unique<Program>());
  program.id = machine_.NewProcess();
  const int threads = random_.Chance(options_.second_thread) ? 2 : 1;
  machine_.Spawn(program.id, [this, &program, threads] {
    Doing("killed while it attaches");
    direct::Attached attached;
    attached.connection = DirectKernel::kConnectionFd;
    attached.descriptors[direct::kWindowDescriptor] = DirectKernel::kWindowFd;
    attached.descriptors[direct::kSocketDescriptor] = DirectKernel::kSocketFd;
    attached.descriptors[direct::kLockDescriptor] = DirectKernel::kLockFd;
    attached.descriptors[direct::kRootDescriptor] = backing_.root();
    attached.window_bytes = window_.header().total_bytes;
    SALIUS_CHECK(program.process.Adopt(attached) == 0);
    program.process.GrantEarly();  // in a session of external synchrony only
    for (int i = 1; i < threads; ++i) {
      machine_.Spawn(program.id, [this, &program] { RunThread(program); });
    }
    RunThread(program);
  });
}

// The child has a copy of the parent's memory, and one thread.
void DirectSim::Fork(Program& parent) {
  Program& child = *programs_.emplace_back(std::make_unique<Program>());
  child.id = machine_.NewProcess();
  child.handles = parent.handles;
  std::memcpy(static_cast<void*>(&child.process), static_cast<const void*>(&parent.process),
              sizeof(child.process));
  Count("fork");
  machine_.Spawn(child.id, [this, &child] {
    child.process.AfterFork();
    RunThread(child);
  });
}

void DirectSim::RunThread(Program& program) {
  while (!ending_) {
    Doing("killed between calls");
    machine_.Sleep(static_cast<int64_t>(random_.Below(options_.pause_us * kUs)));
    if (ending_ || random_.Chance(0.004)) return;  // it exits
    DrawFate(program);
    DoOne(program);
    if (external_) ActOutside(program);
    using_.erase(machine_.running().number);
  }
}

void DirectSim::DrawFate(Program& program) {
  if (Fault("process killed", options_.kill)) {
    machine_.KillAfter(program.id, random_.Below(1 + random_.Below(400)));
  } else if (Fault("process stopped", options_.stop)) {
    machine_.StopAfter(program.id, random_.Below(1 + random_.Below(200)),
                       static_cast<int64_t>(1 + random_.Below(options_.stop_ms)) * kMs);
  }
}

DirectSim::SimFile& DirectSim::AnyFile() {
  if (files_.empty()) return NewFile();
  // Some files get most of the work.
  return *files_[random_.Below(1 + random_.Below(files_.size()))];
}

DirectSim::SimFile& DirectSim::NewFile() {
  SimFile& file = *files_.emplace_back(std::make_unique<SimFile>());
  file.name = absl::StrCat("file", next_name_++);
  SALIUS_CHECK_OK(backing_.MakeNode(backing_.root(), file.name, S_IFREG | 0644, 0));
  auto fd = backing_.OpenAt(backing_.root(), file.name, O_RDWR);
  SALIUS_CHECK_OK(fd);
  file.fd = *std::move(fd);
  kernel_.AddFile(file.fd.get());
  return file;
}

direct::File DirectSim::HandleOf(Program& program, SimFile& file, bool made) {
  using_[machine_.running().number] = &file;
  const auto known = program.handles.find(&file);
  if (known != program.handles.end()) return known->second;
  Doing("killed while it opens");
  const direct::File handle = program.process.Open(file.fd.get(), made);
  if (handle.tracked()) program.handles[&file] = handle;
  return handle;
}

void DirectSim::DoOne(Program& program) {
  const uint64_t kind = random_.Below(100);
  if (kind < 50) return Write(program, AnyFile(), true);
  if (kind < 70) return Write(program, AnyFile(), false);
  if (kind < 82) return Sync(program, AnyFile());
  if (kind < 87) return Truncate(program, AnyFile());
  if (kind < 92) {
    if (files_.size() >= kMostFiles) return Sync(program, AnyFile());
    SimFile& file = NewFile();
    HandleOf(program, file, true);
    return Write(program, file, true);
  }
  if (kind < 95) return WriteUnlogged(program, AnyFile());
  if (kind < 96) return Replace(program);
  if (kind < 98) return SyncAll(program);
  return Fork(program);
}

void DirectSim::Replace(Program& program) {
  SimFile& old = AnyFile();
  const bool in_use = std::any_of(using_.begin(), using_.end(), [&](const auto& use) {
    return use.second == nullptr || use.second == &old;
  });
  if (in_use) return Sync(program, old);
  Say("thread %d removes %s", machine_.running().number, old.name);
  for (const auto& each : programs_) each->handles.erase(&old);  // they close it
  SALIUS_CHECK_OK(backing_.Unlink(backing_.root(), old.name, 0));
  kernel_.RemoveFile(old.fd.get());
  std::erase_if(files_, [&](const auto& file) { return file.get() == &old; });
  SimFile& file = NewFile();
  const auto status = backing_.Stat(file.fd.get());
  SALIUS_CHECK_OK(status);
  if (direct::FindFile(window_, status->st_ino) != direct::kNoFile) {
    Count("inode number used again");
  }
  HandleOf(program, file, true);
  Write(program, file, true);
}

void DirectSim::Write(Program& program, SimFile& file, bool sync) {
  const direct::File handle = HandleOf(program, file, false);
  const uint64_t first = random_.Below(DirectLedger::kCells);
  const uint64_t cells = random_.Chance(0.8) ? 1 : 1 + random_.Below(DirectLedger::kCells - first);
  Doing("killed while it awaits room");
  const int64_t asked = machine_.now();
  program.process.AwaitRoom(handle, cells * DirectLedger::kCellBytes);
  if (machine_.now() - asked >= direct::Files::kLongestRoomWaitNs / 4) Count("waited for room");
  program.process.Lock(handle);
  Doing("killed between lock and write");
  machine_.Step();
  char bytes[DirectLedger::kCells * DirectLedger::kCellBytes];
  for (uint64_t i = 0; i < cells; ++i) {
    const uint64_t value = next_value_++;
    file.ledger.Wrote(first + i, value);
    std::memcpy(bytes + i * DirectLedger::kCellBytes, DirectLedger::CellOf(value).data(),
                DirectLedger::kCellBytes);
  }
  const size_t size = cells * DirectLedger::kCellBytes;
  const uint64_t offset = first * DirectLedger::kCellBytes;
  SALIUS_CHECK_OK(backing_.Pwrite(file.fd.get(), {bytes, size}, offset));
  const uint32_t written = ((1u << cells) - 1) << first;
  const DirectLedger::Marks marks = file.ledger.Newest();
  writing_[machine_.running().number] = {&file, written};
  Say("thread %d writes cells %d to %d of %s as write %d", machine_.running().number, first,
      first + cells - 1, file.name, file.ledger.Newest()[first]);
  Doing("killed between write and record");
  machine_.Sleep(1000);
  // In parts, so that a record is made of several.
  const iovec parts[2] = {{bytes, size / 2}, {bytes + size / 2, size - size / 2}};
  const uint64_t seq = program.process.LogWrite(handle, offset, parts, 2, size);
  writing_.erase(machine_.running().number);
  Finish(file, written, marks);
  if (seq > 0) CheckDeadline(seq);
  Say("thread %d has record %d of cells %d to %d of %s", machine_.running().number, seq, first,
      first + cells - 1, file.name);
  Doing("killed between record and unlock");
  program.process.Unlock(handle);
  Doing("killed before the sync");
  if (sync) Sync(program, file);
}

// A change that the log does not see, as of copy_file_range(2).
void DirectSim::WriteUnlogged(Program& program, SimFile& file) {
  const direct::File handle = HandleOf(program, file, false);
  const uint64_t cell = random_.Below(DirectLedger::kCells), value = next_value_++;
  program.process.BeginUnseen(handle, direct::Reason::kCopy);
  Doing("killed in a change that is not logged");
  machine_.Step();
  // It takes no stripe. So its order with a write of the same bytes that has no record yet is open,
  // as of all writes at once: programs that need one do not make them at once.
  const bool at_once = std::any_of(writing_.begin(), writing_.end(), [&](const auto& each) {
    return each.second.file == &file && (each.second.cells >> cell & 1) != 0;
  });
  if (at_once) return program.process.EndUnseen(handle, direct::Reason::kCopy);
  file.ledger.Wrote(cell, value);
  const DirectLedger::Marks marks = file.ledger.Newest();
  SALIUS_CHECK_OK(
      backing_.Pwrite(file.fd.get(), DirectLedger::CellOf(value), cell * DirectLedger::kCellBytes));
  machine_.Sleep(1000);
  Say("thread %d wrote cell %d of %s without a record", machine_.running().number, cell, file.name);
  program.process.EndUnseen(handle, direct::Reason::kCopy);
  Finish(file, 1u << cell, marks);
  if (random_.Chance(0.5)) Sync(program, file);
}

void DirectSim::Truncate(Program& program, SimFile& file) {
  const direct::File handle = HandleOf(program, file, false);
  const uint64_t cells = random_.Below(DirectLedger::kCells + 1);
  program.process.Lock(handle);
  Doing("killed between lock and write");
  machine_.Step();
  file.ledger.TruncatedTo(cells);
  SALIUS_CHECK_OK(backing_.Truncate(file.fd.get(), cells * DirectLedger::kCellBytes));
  const uint32_t written = ~((1u << cells) - 1);
  const DirectLedger::Marks marks = file.ledger.Newest();
  writing_[machine_.running().number] = {&file, written};
  Doing("killed between write and record");
  machine_.Sleep(1000);
  const uint64_t seq = program.process.LogTruncate(handle, cells * DirectLedger::kCellBytes);
  writing_.erase(machine_.running().number);
  Finish(file, written, marks);
  if (seq > 0) CheckDeadline(seq);
  Say("thread %d cut %s to %d cells, record %d", machine_.running().number, file.name, cells, seq);
  program.process.Unlock(handle);
  if (random_.Chance(0.5)) Sync(program, file);
}

void DirectSim::Finish(SimFile& file, uint32_t cells, const DirectLedger::Marks& written) {
  if (!file.finished.has_value()) file.finished.emplace();
  for (uint64_t i = 0; i < DirectLedger::kCells; ++i) {
    size_t& finished = (*file.finished)[i];
    if ((cells >> i & 1) != 0) finished = std::max(finished, written[i]);
  }
}

void DirectSim::ActOutside(Program& program) {
  if (outside_random_.Chance(options_.end_early)) {
    Say("thread %d ends early return", machine_.running().number);
    Count("early return ended");
    program.process.gate().EndEarly(gate::kSharedMap);
    Output(program);
  } else if (outside_random_.Chance(options_.output)) {
    Output(program);
  } else if (!files_.empty() && outside_random_.Chance(options_.dsync)) {
    Dsync(program);
  }
}

bool DirectSim::Kept(int result, const char* what) {
  if (result == 0) return true;
  const bool may = !CoordinatorLives() || !coordinator_->policy().failure().ok() ||
                   outcome_.of_each.contains("sync error");
  if (!may) Break(absl::StrCat(what, " fails without a reason: ", result));
  return false;
}

void DirectSim::MayCut() {
  if (faults_ && outside_random_.Chance(options_.cut_at_output) && Happens("cut at an output")) {
    cut_now_ = true;
  }
}

// Takes a ticket for what the calls of all processes have written to a file, and awaits it.
void DirectSim::Dsync(Program& program) {
  SimFile& file = *files_[outside_random_.Below(files_.size())];
  if (!file.finished.has_value()) return;
  const uint32_t thread = machine_.running().number;
  const direct::File handle = HandleOf(program, file, false);
  const DirectLedger::Marks marks = *file.finished;
  Doing("killed in a dsync");
  calls_[thread] = {machine_.now(), "dsync"};
  const uint64_t ticket = program.process.Ticket(handle);
  Say("thread %d awaits ticket %d of %s", thread, ticket, file.name);
  const int result = program.process.AwaitTicket(ticket, -1);
  calls_.erase(thread);
  Doing("killed between calls");
  if (!Kept(result, "a dsync")) return;
  Say("thread %d has dsynced %s, durable %d", thread, file.name, window_.durable());
  file.ledger.Acknowledge(marks, /*name=*/true);
  Count(ticket >> 40 != 0 ? "dsync awaited the next sync" : "dsync awaited a record");
  MayCut();
}

// I9: shows all that the calls of all processes have done so far. As preload::Gating.
void DirectSim::Output(Program& program) {
  const uint32_t thread = machine_.running().number;
  using_[thread] = nullptr;
  std::vector<Covered> covered;
  for (const auto& file : files_) {
    if (file->finished.has_value()) covered.push_back({file.get(), *file->finished});
  }
  const Seq issued = window_.window().issued();
  Say("thread %d makes an output", thread);
  Doing("killed before an output");
  if (program.process.gate().Pending()) {
    calls_[thread] = {machine_.now(), "output"};
    const int result = program.process.gate().Await();
    calls_.erase(thread);
    Count("output waited");
    if (!Kept(result, "an output")) return;
  }
  Say("thread %d made an output, durable %d", thread, window_.durable());
  if (window_.durable() < issued) {
    Break(absl::StrCat("I9: an output is made while record ", issued, " is not durable"));
  }
  for (const Covered& each : covered) each.file->ledger.Acknowledge(each.marks, /*name=*/true);
  Count("output");
  MayCut();
}

// I6: nothing is issued beside a record that waits for too long.
void DirectSim::CheckDeadline(Seq seq) {
  const Seq checkpoint = window_.window().checkpoint();
  if (seq <= checkpoint + 1) return;
  const int64_t age =
      window_.window().At(seq).issued_ns - window_.window().At(checkpoint + 1).issued_ns;
  if (age > window_.header().oldest_ns) {
    Break(absl::StrCat("I6: a record is issued while one waits for the disk since ", age / 1000,
                       " us"));
  }
}

void DirectSim::Sync(Program& program, SimFile& file) {
  const direct::File handle = HandleOf(program, file, false);
  std::vector<Covered> covered = {{&file, file.ledger.Newest()}};
  const bool was_dead = !CoordinatorLives();
  // A sync that returns early promises nothing but what the next output does.
  const bool early = program.process.early() && program.process.gate().Early();
  const direct::PhaseWord before = window_.phase();
  const uint64_t real_syncs = window_.header().counters.real_syncs;
  const uint64_t file_syncs = kernel_.file_syncs();
  const bool had_failed = file.failed;
  Say("thread %d syncs %s", machine_.running().number, file.name);
  Doing("killed in a sync");
  calls_[machine_.running().number] = {machine_.now(), "fsync"};
  const int result = program.process.Sync(handle, file.fd.get(), random_.Chance(0.5));
  if (result == 0 && had_failed) Break("I8: a sync succeeds after a failed one of its file");
  if (result != 0 && handle.tracked() && window_.file(handle.index).failed.load() != 0) {
    file.failed = true;
  }
  if (early) {
    // It covers what was in the page cache, also of processes that died in a call.
    if (result == 0) Finish(file, ~0u, covered.front().marks);
    covered.clear();
  }
  Synced(result, covered, before, was_dead, real_syncs, file_syncs, /*all=*/false);
}

void DirectSim::SyncAll(Program& program) {
  using_[machine_.running().number] = nullptr;
  std::vector<Covered> covered;
  for (const auto& file : files_) covered.push_back({file.get(), file->ledger.Newest()});
  const bool was_dead = !CoordinatorLives();
  const direct::PhaseWord before = window_.phase();
  Doing("killed in a sync of all");
  calls_[machine_.running().number] = {machine_.now(), "sync of all"};
  const int result = program.process.SyncAll();
  Synced(result, covered, before, was_dead, window_.header().counters.real_syncs,
         kernel_.file_syncs(), /*all=*/true);
}

void DirectSim::Synced(int result, const std::vector<Covered>& covered, direct::PhaseWord before,
                       bool was_dead, uint64_t real_syncs, uint64_t file_syncs, bool all) {
  calls_.erase(machine_.running().number);
  Doing("killed between calls");
  if (window_.phase().generation() != before.generation()) {
    Count("generation changed under a sync");
  }
  const std::string what = all ? "all" : covered.empty() ? "early" : covered.front().file->name;
  Say("thread %d synced %s: %d, durable %d", machine_.running().number, what, result,
      window_.header().durable.load());
  if (result != 0) {
    const bool may = !CoordinatorLives() || !coordinator_->policy().failure().ok() ||
                     outcome_.of_each.contains("sync error");
    if (!may) Break(absl::StrCat("a sync fails without a reason: ", result));
    Count(CoordinatorLives() ? "sync that fails" : "sync that fails after the coordinator's death");
    return;
  }
  if (was_dead) Break("I8: a sync succeeds that began after the coordinator's death");
  // In mode local a sync of a file is the file system's own. That promises no name.
  const bool names = all || before.phase() == direct::Phase::kReplicated;
  for (const Covered& each : covered) each.file->ledger.Acknowledge(each.marks, names);
  if (before.phase() == direct::Phase::kReplicated &&
      window_.header().counters.real_syncs != real_syncs && kernel_.file_syncs() != file_syncs) {
    Count("real fsync in mode replicated");
  }
  const Seq last = window_.window().issued();
  if (last > window_.window().checkpoint() && window_.record(last).ready.load() != 0) {
    const auto header = DecodeRecordHeader({window_.record_bytes(last), kRecordHeaderBytes});
    if (header.ok() && header->op == Op::kOnDisk && header->file_id != kNoFileId) {
      Count("record of a real fsync");
    }
  }
}

}  // namespace salius::sim

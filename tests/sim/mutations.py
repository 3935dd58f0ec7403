#!/usr/bin/env python3
"""Plants one bug at a time into the shipping code and counts the simulated lifetimes until one
breaks.

    tests/sim/mutations.py [--count N] [NAME ...]     all, or the named ones; at most N lifetimes
                                                      each (100000)
    tests/sim/mutations.py --list
    tests/sim/mutations.py --patterns                 whether each pattern is still in its file;
                                                      builds nothing
    tests/sim/mutations.py --check-replay NAME ...    whether the seed that each breaks replays to
                                                      the byte, and shrinks

Builds and runs tests/sim:cluster_sim_run for each and restores the code. A bug that no lifetime
shows is an error. Refuses to start when a file that it would change has uncommitted changes."""
import contextlib
import pathlib
import re
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = "//tests/sim:cluster_sim_run"

CORE = "client/session/replicator.cc"
PLAN = "client/session/replicator_plan.cc"
ACCEPTOR = "replica/acceptor.cc"
FRAMES = "replica/acceptor_frames.cc"

# name, file, old text, new text; file and texts again for every further place
BUGS = [
    ("one_ack_too_few", CORE, ">= options_.acks;\n}", ">= options_.acks - 1;\n}"),
    ("durable_before_contiguous", CORE, "if (!Recoverable(next, noted_, old_members)) break;",
     "if (!Recoverable(next, noted_, old_members) && "
     "!(next < issued_ && Recoverable(next + 1, noted_, old_members))) break;"),
    ("acks_count_while_their_note_is_in_flight", PLAN, "  pending_ = config;",
     "  pending_ = config;\n  noted_ = config;\n  counting_ = config.mode == Mode::kReplicated;"),
    ("local_noted_before_the_stable_log_has_all", PLAN,
     "  if (!AllDurableRecoverable(config)) {\n    stable_upto_ = issued_;\n    return;\n  }\n", ""),
    ("members_noted_before_a_lost_copy_is_secured", PLAN,
     "  const Config config = MakeConfig(Mode::kReplicated, target);\n  if (AllDurableRecoverable(config)) {",
     "  const Config config = MakeConfig(Mode::kReplicated, target);\n  if (true) {"),
    ("what_the_old_note_would_lose_counts", CORE, "    if (!Recoverable(next, noted_, old_members)) break;\n",
     "    if (!pending_ && !Recoverable(next, noted_, old_members)) break;\n"),
    ("issues_past_the_deadline", CORE,
     "  if (oldest_uncheckpointed_ns(now) > options_.k * options_.tau_ns - 2 * options_.delta_ns) {",
     "  if (now < 0) {"),
    ("a_non_member_counts", CORE, "slot.held & effective",
     "slot.held | (effective & 0)"),
    ("stable_before_it_is_on_disk", CORE, "slot.stable_in_flight = true;", "slot.stable = true;"),
    ("failed_sync_is_ignored", CORE,
     "  sync_in_flight_ = false;\n  if (!failure_.ok()) return;\n  if (!status.ok()) {",
     "  sync_in_flight_ = false;\n  if (!failure_.ok()) return;\n  if (false) {"),
    ("failed_note_is_ignored", PLAN,
     "  SALIUS_CHECK(pending_.has_value());\n  if (!failure_.ok()) return;\n  if (!status.ok()) {",
     "  SALIUS_CHECK(pending_.has_value());\n  if (!failure_.ok()) return;\n  if (false) {"),
    ("checkpoint_of_what_was_applied_not_synced", PLAN, "config.checkpoint = synced_;",
     "config.checkpoint = applied_;"),
    ("sync_covers_what_came_after_it", CORE, "synced_ = std::max(synced_, applied_before);",
     "synced_ = std::max({synced_, applied_before, applied_});"),
    ("trim_before_the_note_returned", "client/session/replicator.h",
     "Seq checkpoint() const { return noted_.checkpoint; }",
     "Seq checkpoint() const { return synced_ > noted_.checkpoint ? synced_ : noted_.checkpoint; }"),
    ("stable_log_cut_before_its_note", CORE, "synced_ = std::max(synced_, applied_before);",
     "synced_ = std::max(synced_, applied_before);\n  out_.cut = synced_;"),
    ("member_with_a_base_above_the_checkpoint", PLAN, "if (replica.base > synced_ + 1) {",
     "if (replica.base > issued_ + 100) {"),
    ("fence_not_obeyed", FRAMES,
     "  if (epoch < volume->slot.fence_epoch()) return Standing::kFenced;  // B\n", ""),
    ("replica_ignores_the_epoch",
     FRAMES, "  if (epoch < volume->slot.fence_epoch()) return Standing::kFenced;  // B\n", "",
     FRAMES, "  if (epoch != volume->slot.epoch) return Standing::kForeignEpoch;  // A\n", "  (void)epoch;\n"),
    ("fenced_session_opens_again", ACCEPTOR, "  if (params.epoch < promise.promised) {",
     "  if (params.epoch < promise.promised && params.epoch != promise.opened) {",
     FRAMES, "  if (epoch < volume->slot.fence_epoch()) return Standing::kFenced;  // B\n", ""),
    ("promise_forgotten_by_a_reboot", ACCEPTOR, "  LoadPromises(now_ns);\n", ""),
    ("promise_answered_before_it_is_written", ACCEPTOR, "  if (newer) ++promises_version_;\n", ""),
    ("promise_not_kept", ACCEPTOR, "    slot.promise_epoch = epoch;\n    slot.promise_token = token;\n", ""),
    ("log_given_up_although_never_told", ACCEPTOR,
     "    if (options_.abandon_after_ns > 0 &&\n        now_ns", "    if (now_ns"),
    ("overdue_records_are_dropped", ACCEPTOR,
     "    if (overdue && !volume->overdue_reported) report.became_overdue.push_back(id);",
     "    if (overdue && options_.abandon_after_ns == 0) report.abandoned.push_back(id);"),
    ("no_alarm_when_overdue", ACCEPTOR, "volume.age.AgeNs(now_ns) > limit;", "volume.age.AgeNs(now_ns) > limit * 100;"),
    ("given_up_log_answers_empty", ACCEPTOR, "  if (volume.log == nullptr) return i;  // G\n  i.known = true;\n",
     "  i.known = true;\n  i.epoch = volume.slot.promise_epoch - 1;\n  i.base = 1;\n"
     "  if (volume.log == nullptr) return i;  // G\n"),
    ("trims_one_too_many", FRAMES, "volume.log->TrimTo(slot.trimmed);",
     "volume.log->TrimTo(slot.trimmed + 1);"),
    ("recovery_with_one_answer_too_few", "recovery/agree/quorum.cc", "members - state.acks + 1 : 1;",
     "members - state.acks : 1;"),
    ("recovery_counts_a_reborn_member", "recovery/agree/quorum.cc",
     "if (member->incarnation != answer.incarnation) return Standing::kOtherLife;",
     "if (member->incarnation != answer.incarnation) return Standing::kCounts;"),
    ("recovery_asks_and_does_not_fence", "recovery/recovery.cc", "request.ask_only = options_.dry_run;",
     "request.ask_only = true;"),
    ("recovery_does_not_pin", "recovery/recovery.cc",
     "      SALIUS_RETURN_IF_ERROR(PinDecision(stable));\n", ""),
    ("recovery_replays_what_lies_below_the_checkpoint", "recovery/agree/merge.cc",
     "if (use && header.seq > input_.checkpoint) found_", "if (use) found_"),
    ("order_by_the_clock", "recovery/agree/merge.cc", "      return a->seq() < b->seq();",
     "      return a->header.timestamp_ns < b->header.timestamp_ns;",
     "log/record.h", "return std::max(last + 1, now);", "return now + last * 0;"),
    ("recovery_ignores_the_stable_log", "recovery/recovery.cc",
     "    input.stable = stable_records_.views();\n", ""),
    ("recovery_replays_an_old_epoch", "recovery/agree/merge.cc",
     "      if (header.epoch < input_.epoch) continue;\n", ""),
    ("recovery_replays_past_a_gap", "recovery/agree/merge.cc", ": result.missing.front().first - 1;",
     ": result.records.back()->seq();\n  result.records.resize(result.last - input.checkpoint, "
     "result.records.empty() ? nullptr : result.records.back());"),
    ("recovery_stops_a_stream_too_early", "recovery/agree/collect.cc", "enough_at_ = *coverage->LastMissing(",
     "enough_at_ = *coverage->FirstMissing("),
    ("recovery_takes_what_it_asked_for_for_brought", "recovery/agree/collect.cc",
     "for (const RecordView& record : collected_[i].records.views()) coverage_.Add(record.seq());",
     "for (Seq seq = pieces_[0].after + 1; seq <= pieces_.back().last + i - i; ++seq) coverage_.Add(seq);"),
    ("pin_without_a_decision", "recovery/agree/pin.cc", "  return stable.AppendDecision(decision);",
     "  return absl::OkStatus();"),
    ("decision_without_its_records", "recovery/agree/pin.cc",
     "    if (request.in_stable(record->seq())) continue;\n", "    continue;\n"),
    ("decision_ignored_by_a_rerun", "recovery/recovery.cc",
     "    if (decision_.has_value()) {\n      SALIUS_RETURN_IF_ERROR(ResumeDecision());",
     "    if (decision_.has_value() && false) {\n      SALIUS_RETURN_IF_ERROR(ResumeDecision());"),
    ("commit_before_the_sync", "recovery/recovery.cc",
     "    SALIUS_RETURN_IF_ERROR(target().Sync(context_));\n", ""),
    ("each_run_of_a_recovery_has_its_own_token", "recovery/recovery.cc",
     "    if (earlier.has_value()) {\n      run_note_ = *earlier;",
     "    if (earlier.has_value() && false) {\n      run_note_ = *earlier;"),
    ("an_epoch_is_used_twice", "recovery/replay/commit.cc", "next.epoch = next_epoch;",
     "next.epoch = next_epoch - 2;"),
    ("older_bytes_put_back_over_bulk_data", "recovery/replay/replay_plan.cc",
     "if (record.seq() <= object.on_disk_upto) {", "if (record.seq() == 0) {"),
    ("newer_bytes_taken_for_those_on_disk", "recovery/replay/replay_plan.cc", "if (record.seq() <= object.on_disk_upto) {",
     "if (record.seq() <= object.on_disk_upto + 2) {"),
    ("renamed_file_keeps_its_old_name", "recovery/replay/replay_plan.cc",
     "    plan_.bindings[from].target = kNoFileId;\n", ""),
    # a memory of an earlier moment under the same incarnation
    ("memory_that_went_back_counts", "client/session/heard_set.cc",
     "  if (sent_ns > contiguous_ns_ && ack.contiguous < contiguous_) {", "  if (sent_ns < kNever) {"),
    # a full disk
    ("note_without_room_is_ignored", PLAN,
     "  SALIUS_CHECK(pending_.has_value());\n  if (!failure_.ok()) return;\n  if (!status.ok()) {",
     "  SALIUS_CHECK(pending_.has_value());\n  if (!failure_.ok()) return;\n"
     "  if (!status.ok() && !absl::IsResourceExhausted(status)) {"),
    ("append_without_room_counts", CORE, "    if (status.ok()) {\n      At(seq).stable = true;",
     "    if (true) {\n      At(seq).stable = true;"),
    ("record_without_room_counts_as_applied", "client/session/replicator.h",
     "void OnApplyFailed(const absl::Status& status) { Fail(status); }",
     "void OnApplyFailed(const absl::Status&) { OnApplied(applied_ + 1); }"),
    ("short_write_taken_for_a_whole_one", "common/file.cc", "    off += put;\n",
     "    if (put > 0) return absl::OkStatus();\n    off += put;\n"),
    ("refused_operation_is_performed_by_recovery", "recovery/replay/replay_plan.cc",
     "if (cancelled_.insert(header.arg0).second) ++plan_.cancelled;", "++plan_.cancelled;"),
    # a disk that fails
    ("failed_write_is_ignored", "common/file.cc",
     "if (put < 0) return FdError(absl::StrFormat(\"pwrite at %d\", off), fd);",
     "if (put < 0) return errno == EIO ? absl::OkStatus() : ErrnoStatus(errno, \"pwrite\");"),
    ("note_read_from_the_cache_of_a_failed_sync", "log/state_file.cc", "  fs::DropCache(fd.get());\n", ""),
    ("log_read_from_the_cache_of_a_failed_sync", "log/stable_log.cc", "  fs::DropCache(impl->fd.get());\n", ""),
    ("recovery_goes_on_after_a_failed_sync", "recovery/recovery.cc",
     "    SALIUS_RETURN_IF_ERROR(target().Sync(context_));\n", "    target().Sync(context_).IgnoreError();\n"),
    # only the process dies
    ("applied_mark_kept_after_a_failed_sync", "log/applied_mark.cc", "if (ok && said_)", "if (said_ || (ok && said_))"),
    ("applied_mark_kept_until_a_sync_has_failed", "log/applied_mark.cc",
     "  Put(page_, kCheckWord, ~(Get(page_, kEpochWord) ^ kAppliedMagic));\n}\n\n"
     "void AppliedMark::SyncEnds(bool ok) {\n  if (ok && said_) ",
     "}\n\nvoid AppliedMark::SyncEnds(bool ok) {\n  if (!ok) Put(page_, kCheckWord, ~Get(page_, kCheckWord));\n  if (ok) "),
    ("applied_mark_kept_until_the_sync_of_a_recovery_has_failed", "recovery/replay/commit.cc",
     "  mark->SyncBegins();\n  const absl::Status synced = SyncVolume(context.root_fd, file.get());\n",
     "  const absl::Status synced = SyncVolume(context.root_fd, file.get());\n  mark->SyncBegins();\n"),
    ("what_the_kernel_told_others_is_ignored", "recovery/replay/commit.cc",
     "|| *complaints != mark->complaints()", ""),
    ("same_life_without_its_sync", "recovery/replay/commit.cc", "synced = SyncVolume(context.root_fd, file.get());", "synced;"),
    ("another_boot_taken_for_the_same_life", "recovery/replay/commit.cc",
     "  if (boot_id != state.boot_id) return false;\n", ""),
    # replicas without memory; too few of them
    ("replica_names_what_it_had_no_room_for", "replica/log_store.cc",
     "    if (!place.has_value()) return Result::kMemoryFull;\n    it = in_progress_",
     "    if (!place.has_value()) {\n      held_.Add(fragment.seq);\n      return Result::kMemoryFull;\n    }\n"
     "    it = in_progress_"),
    ("rest_of_a_cut_record_freed_with_older_ones", "replica/log_store.cc",
     "Take(segments_.back(), seq, record_bytes - here);", "Take(segments_.back(), 0, record_bytes - here);"),
    ("rest_of_a_cut_record_freed_at_a_restart", "replica/log_store_restart.cc", "    rest.live = true;\n", ""),
    ("mode_local_does_not_use_the_stable_log", CORE, "  if (!counting_) stable_upto_ = issued_;\n", ""),
    ("every_note_into_the_same_slot", "log/state_file.cc", "(generation % kSlots)", "(generation % 1)"),
    ("note_not_synced", "log/state_file.cc", "offset, RWF_DSYNC);", "offset, 0);"),
    ("append_not_synced", "log/stable_log.cc",
     "static_cast<int64_t>(stable::kRingAt + first), RWF_DSYNC);", "static_cast<int64_t>(stable::kRingAt + first));"),
]


def places(bug):
    """Returns (file, old text, new text) of each place."""
    return [bug[i : i + 3] for i in range(1, len(bug), 3)]


@contextlib.contextmanager
def binary_with(bug):
    """Provides the simulator with this bug in it; restores the code. ValueError when it cannot be
    built."""
    sources = {ROOT / name: (ROOT / name).read_text() for name, _, _ in places(bug)}
    try:
        for name, old, new in places(bug):
            text = (ROOT / name).read_text()
            if text.count(old) != 1:
                raise ValueError("the pattern is there %d times" % text.count(old))
            (ROOT / name).write_text(text.replace(old, new))
        build = subprocess.run(["bazel", "build", "--noshow_progress", TARGET], cwd=ROOT, capture_output=True,
                               text=True, check=False)
        if build.returncode != 0:
            raise ValueError("does not build:\n" + build.stderr[-2000:])
        info = subprocess.run(["bazel", "info", "-c", "opt", "bazel-bin"], cwd=ROOT, capture_output=True, text=True,
                              check=True)
        yield info.stdout.strip() + "/tests/sim/cluster_sim_run"
    finally:
        for path, source in sources.items():
            path.write_text(source)


def run(binary, *options):
    """Returns (exit code, output, the last line of its errors)."""
    ended = subprocess.run([binary, *options], capture_output=True, text=True, check=False, timeout=900)
    return ended.returncode, ended.stdout, (ended.stderr.strip().splitlines() or [""])[-1]


def first_broken(binary, count):
    """Returns (seed, how), or (None, its last line)."""
    code, text, complaint = run(binary, "--count", str(count))
    last = (text.strip().splitlines() or [""])[-1]
    broken = re.match(r"seed ([1-9]\d*) BROKEN: (.*)", last)
    if broken:
        return int(broken[1]), broken[2] + (": " + complaint[-50:] if code < 0 else "")
    if code != 0:
        raise ValueError("ended with %d and named no seed: %s" % (code, complaint[-70:]))
    return None, last


def planted(bug, count):
    """Returns ("found", seeds, how) or (problem, 0, "")."""
    try:
        with binary_with(bug) as binary:
            seed, how = first_broken(binary, count)
    except ValueError as problem:
        return str(problem), 0, ""
    except subprocess.TimeoutExpired:
        return "not found within 900 s", 0, ""
    return ("found", seed, how[:70]) if seed is not None else ("not found", 0, how)


def replay_problem(binary):
    """Returns the problem of the replay of the first broken seed (None: it has none), and a line
    about the run."""
    seed, how = first_broken(binary, 20000)
    if not seed:
        return "no seed of 20000 is broken", how
    code, first, _ = run(binary, "--seed", str(seed), "--trace")
    again = run(binary, "--seed", str(seed), "--trace")[1]
    if code != 1 or "seed %d BROKEN: %s" % (seed, how) != first.splitlines()[-1]:
        return "seed %d breaks otherwise with --trace" % seed, first[-200:]
    if "\nseed %d digest " % seed not in first:
        return "seed %d has no digest" % seed, first[-200:]
    if first != again:
        return "seed %d has two traces" % seed, ""
    code, shrunk, _ = run(binary, "--shrink", str(seed))
    left = re.match(r"seed \d+ with (\d+) of (\d+) faults BROKEN: ", shrunk.splitlines()[-1])
    if code != 1 or not left:
        return "seed %d does not shrink" % seed, shrunk[-200:]
    if int(left[1]) >= int(left[2]):
        return "seed %d needs %s of its %s faults" % (seed, left[1], left[2]), ""
    return None, "seed %d: %d bytes of trace twice, %s of %s faults needed" % (seed, len(first), left[1], left[2])


def check_replay(bugs):
    wrong = 0
    for bug in bugs:
        try:
            with binary_with(bug) as binary:
                problem, seen = replay_problem(binary)
        except (ValueError, subprocess.TimeoutExpired) as failed:
            problem, seen = str(failed), ""
        wrong += problem is not None
        print("%s: %s%s" % (bug[0], "WRONG: %s; " % problem if problem else "", seen), flush=True)
    return 1 if wrong else 0


def check_patterns():
    wrong = 0
    for bug in BUGS:
        for path, old, new in places(bug):
            times = (ROOT / path).read_text().count(old)
            if times != 1 or old == new:
                wrong += 1
                print("%s: its pattern is in %s %d times" % (bug[0], path, times))
    print("%d of %d planted bugs have their place" % (len(BUGS) - wrong, len(BUGS)))
    return 1 if wrong or not BUGS else 0


def main(argv):
    count, replay = 100000, False
    for number in signal.SIGTERM, signal.SIGHUP:  # the code is restored
        signal.signal(number, lambda *_: sys.exit(143))
    if argv == ["--patterns"]:
        return check_patterns()
    if argv[:1] == ["--check-replay"]:
        replay = True
        argv = argv[1:]
        if not argv:
            print(__doc__, file=sys.stderr)
            return 2
    if argv[:1] == ["--count"]:
        count = int(argv[1])
        argv = argv[2:]
    if argv == ["--list"]:
        for bug in BUGS:
            print("%-45s %s" % (bug[0], " ".join(path for path, _, _ in places(bug))))
        return 0
    bugs = [bug for bug in BUGS if not argv or bug[0] in argv]
    if argv and len(bugs) != len(set(argv)):
        print("unknown bug; --list shows them", file=sys.stderr)
        return 2
    files = sorted({path for bug in bugs for path, _, _ in places(bug)})
    dirty = subprocess.run(["git", "status", "--porcelain", "--", *files], cwd=ROOT, capture_output=True, text=True,
                           check=True).stdout
    if dirty:
        print("commit first, these have changes:\n" + dirty, file=sys.stderr)
        return 2
    if replay:
        return check_replay(bugs)
    found = 0
    for bug in bugs:
        verdict, seeds, how = planted(bug, count)
        found += verdict == "found"
        print("| %s | %s | %s |" % (bug[0].replace("_", " "), seeds if verdict == "found" else "NOT FOUND: " + verdict,
                                    how), flush=True)
    print("%d of %d planted bugs found" % (found, len(bugs)))
    return 0 if found == len(bugs) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
"""Takes the code behind each guarantee out, one piece at a time, and checks that its test then fails.

Each mutation replaces one piece of shipping code, builds the named test with Bazel, runs it and puts the code
back. A mutation that no test notices is an error. Refuses to start when a file it would touch has uncommitted
changes. The table it prints is what docs/guarantees.md quotes.

    tests/mutations/run.py [NAME ...]     all, or the named ones
    tests/mutations/run.py --list
    tests/mutations/run.py --patterns     that each is still where the list looks for it; builds nothing
"""

import dataclasses
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Mutation:
    guarantee: str
    name: str
    path: str
    old: str
    new: str
    target: str
    test: str  # googletest filter


SIM = "//tests/sim:session_sim_test"
CORE = "//tests/unit/engine:replicator_test"
MEMBERS = "//tests/unit/engine:replicator_members_test"
PIPE = "//tests/unit/engine:pipeline_test"
CC = "client/engine/replicator.cc"
PLAN = "client/engine/replicator_plan.cc"

MUTATIONS = [
    Mutation("I1", "one_ack_too_few", CC, ">= options_.acks;\n}", ">= options_.acks - 1;\n}",
             CORE, "ReplicatorTest.FAcksMakeARecordDurableAndFMinusOneDoNot"),
    Mutation("I1", "durable_before_contiguous", CC,
             "if (!Recoverable(next, noted_, old_members)) break;",
             "if (!Recoverable(next, noted_, old_members) && "
             "!(next < issued_ && Recoverable(next + 1, noted_, old_members))) break;",
             CORE, "ReplicatorTest.ARecordIsDurableOnlyWithAllBeforeIt"),
    Mutation("I1", "acks_count_before_the_note_returned", PLAN, "  pending_ = config;",
             "  pending_ = config;\n  noted_ = config;\n  counting_ = config.mode == Mode::kReplicated;",
             CORE, "ReplicatorTest.AcksDoNotCountBeforeTheReplicatedNoteHasReturned"),
    Mutation("I1", "local_noted_before_the_stable_log_has_all", PLAN,
             "  if (!AllDurableRecoverable(config)) {\n    stable_upto_ = issued_;\n    return;\n  }\n",
             "", SIM, "SessionSimTest.NothingAcknowledgedIsLostWhateverHappensBeforeTheCrash"),
    Mutation("I1", "members_noted_before_the_lost_copy_is_secured", PLAN,
             "  const Config config = MakeConfig(Mode::kReplicated, target);\n"
             "  if (AllDurableRecoverable(config)) {",
             "  const Config config = MakeConfig(Mode::kReplicated, target);\n  if (true) {",
             MEMBERS, "ReplicatorTest.LosingAMemberSecuresWhatLeanedOnItBeforeTheNote"),
    Mutation("I1", "recovery_with_one_answer_too_few", "recovery/quorum.cc",
             "members - state.acks + 1 : 1;", "members - state.acks : 1;",
             "//tests/unit/recovery:quorum_test",
             "QuorumTest.AsManyMustAnswerThatOneOfAnyFHoldersIsAmongThem"),
    Mutation("I1", "late_piece_changes_what_was_summed_up", "replica/log_store.cc",
             "store(std::max(begin, record.summed), end);",
             "store(std::max<uint32_t>(begin, kRecordHeaderBytes), end);",
             "//tests/unit/replica:log_store_test", "LogStoreTest.OnlyTheRightBytesAreEverHeld"),
    Mutation("I1", "record_in_pieces_not_verified", "replica/log_store.cc",
             "} else if (ExtendCrc(record.body_crc, record.place, record.record_bytes, record.summed) !=\n"
             "             header->body_crc) {",
             "} else if (false) {",
             "//tests/unit/replica:log_store_test", "LogStoreTest.OnlyTheRightBytesAreEverHeld"),
    Mutation("I6", "segment_freed_in_which_a_newer_record_goes_on", "replica/log_store.cc",
             "Take(segments_.back(), seq, record_bytes - here);", "Take(segments_.back(), 0, record_bytes - here);",
             "//tests/unit/replica:log_store_test", "LogStoreTest.TrimFreesNoSegmentInWhichANewerRecordGoesOn"),
    Mutation("I6", "the_same_after_a_restart", "replica/log_store_restart.cc",
             "    rest.segment.max_seq = std::max(rest.segment.max_seq, scan.next_seq);\n", "",
             "//tests/unit/replica:log_store_restart_test", "CutRecordTest.KeepsTheSegmentInWhichOnlyOlderOnesBegin"),
    Mutation("I6", "segment_of_a_rest_alone_freed_at_a_restart", "replica/log_store_restart.cc",
             "    rest.live = true;\n", "",
             "//tests/unit/replica:log_store_restart_test", "CutRecordTest.KeepsTheSegmentInWhichNoOtherBegins"),
    Mutation("I5", "body_not_verified_at_a_restart", "replica/log_store_restart.cc",
             "  return ExtendCrc(0, place, bytes, kRecordHeaderBytes) == header.body_crc;", "  return true;",
             "//tests/unit/replica:log_store_restart_test", "CutRecordTest.DamageInEitherPartCostsItAlone"),
    Mutation("I1", "stable_log_reach_not_noted", "log/stable_log.cc",
             "end - header.start > header.capacity || end > header.reach",
             "end - header.start > header.capacity",
             "//tests/unit/log:stable_log_crash_test",
             "StableLogReachTest.TornBatchThatGoesFartherThanTheLogEverDidNeverComesBack"),
    Mutation("I1", "told_before_it_is_durable", "client/engine/pipeline_io.cc",
             "waiters.front().seq <= core.durable()", "waiters.front().seq <= core.issued()",
             PIPE, "PipelineTest.WhoeverWantsToBeToldIsToldOnceAndNotBeforeItIsDurable"),
    Mutation("I2", "stamped_behind_the_unlink_of_the_last_name", "client/engine/names.cc",
             "  absl::MutexLock stream(&victim.stream);\n", "",
             "//tests/unit/engine_volume:volume_records_test",
             "RecordsTest.NothingIsStampedForAFileBehindTheRecordThatTakesItsLastName"),
    Mutation("I2", "stamped_behind_the_rename_over_the_last_name", "client/engine/names_rename.cc",
             "absl::MutexLockMaybe stream(displaced != nullptr ? &displaced->stream : nullptr);",
             "absl::MutexLockMaybe stream(nullptr);",
             "//tests/unit/engine_volume:volume_records_test",
             "RecordsTest.NothingIsStampedForAFileBehindTheRecordThatTakesItsLastName"),
    Mutation("I2", "hidden_link_dropped_while_a_change_is_stamped", "client/engine/volume_files.cc",
             "    if (!link.node->stream.TryLock()) {\n      NoteHiddenLink(*link.node, link.after);\n"
             "      continue;\n    }\n    DropCoveredLink(*link.node, checkpoint);\n"
             "    link.node->stream.Unlock();\n",
             "    DropCoveredLink(*link.node, checkpoint);\n",
             "//tests/unit/engine_volume:volume_records_test",
             "RecordsTest.HiddenLinkStaysWhileAChangeOfTheClosedFileIsBeingStamped"),
    Mutation("I2", "name_given_while_the_last_one_goes", "client/engine/names.cc",
             "    absl::MutexLock stream(&node.stream);\n    SALIUS_RETURN_IF_ERROR(EnsureIdLocked(node));\n",
             "    SALIUS_RETURN_IF_ERROR(EnsureId(node));\n",
             "//tests/unit/engine_volume:volume_records_test",
             "RecordsTest.HiddenLinkStaysWhileTheFileIsBeingNamed"),
    Mutation("I2", "replay_past_a_gap", "recovery/merge.cc",
             ": result.missing.front().first - 1;", ": result.records.back()->seq();",
             "//tests/unit/recovery:merge_test",
             "MergeTest.CutsAtTheFirstGapAboveEveryDurableMark"),
    Mutation("I2", "cancelled_operations_are_performed", "recovery/replay_plan.cc",
             "if (!left_out && cancelled_.contains(record->seq())) continue;", "", "//tests/unit/recovery:replay_plan_test",
             "ReplayPlanTest.CancelledOperationsAreNotPerformed"),
    Mutation("I3", "replay_ignores_on_disk", "recovery/replay_plan.cc",
             "if (record.seq() <= object.on_disk_upto) {", "if (record.seq() < 1) {",
             "//tests/unit/recovery:replay_plan_test",
             "ReplayPlanTest.OnDiskSkipsDataUpToItsSeqAndNoAttributes"),
    Mutation("I3", "born_before_the_table_is_locked", "client/engine/node.cc",
             "    node = new Node(std::move(path_fd), st, issued(),",
             "    mu_.Unlock();\n    const Seq before = issued();\n    mu_.Lock();\n"
             "    node = new Node(std::move(path_fd), st, before,",
             "//tests/unit/engine_volume:volume_records_test",
             "NodeTableTest.NoNodeComesOrGoesBetweenWhatWasIssuedAndTheNewNode"),
    Mutation("I1", "rename_overtakes_bulk_data", "client/engine/names_rename.cc",
             "  if (displaced != nullptr) {\n    // Data past the log", "  if (false) {\n    // Data past the log",
             "//tests/unit/engine_volume:volume_records_test", "BulkTest.RenameOverAnotherFileSyncsBulkDataFirst"),
    Mutation("I2", "bulk_sync_leaves_the_times_behind", "client/engine/bulk.cc",
             "absl::Status synced = FsyncFd(fd->get());", "absl::Status synced = FdatasyncFd(fd->get());",
             "//tests/unit/engine_volume:volume_records_test", "BulkTest.FsyncPutsTheTimesOnTheDiskToo"),
    Mutation("I3", "bulk_sync_without_on_disk_record", "client/engine/bulk.cc",
             "} else if (last > checkpoint) {", "} else if (last > checkpoint && false) {",
             "//tests/unit/engine_volume:volume_records_test",
             "BulkTest.FsyncMakesOnDiskDurableAndTheFileIsLoggedAgain"),
    Mutation("I4", "replica_forgets_its_promise", "replica/acceptor_frames.cc",
             "if (epoch < volume->slot.fence_epoch()) return Standing::kFenced;  // B",
             "",
             "//tests/unit/replica:acceptor_sessions_test",
             "AcceptorTest.AfterAFenceNothingOfAnOlderEpochIsStoredTrimmedOrNamed"),
    Mutation("I4", "primary_ignores_the_fence", CC, "if (ack.flags & kAckFenced) {", "if (false) {",
             CORE, "ReplicatorTest.AFencedAckFailsTheVolumeForGood"),
    Mutation("I4", "time_stopped_counts_as_silence", "client/engine/replicator_time.cc",
             "if (resumes_++ < kMaxResumes) resumed_ns_ = now;", "",
             CORE, "ReplicatorTest.AfterAStopReplicasGetTheirTimeToAnswerBeforeTheDiskIsTaken"),
    Mutation("I5", "acks_of_another_incarnation_count", CC,
             "if (ack.incarnation != replica.incarnation || (ack.flags & kAckUnknownSession)) {",
             "if (ack.flags & kAckUnknownSession) {",
             MEMBERS, "ReplicatorTest.AnotherIncarnationNeverCounts"),
    Mutation("I5", "recovery_counts_a_reborn_member", "recovery/quorum.cc",
             "if (member->incarnation != answer.incarnation) return Standing::kOtherLife;", "",
             "//tests/unit/recovery:quorum_test",
             "QuorumTest.AMemberThatLostItsMemoryDoesNotCount"),
    Mutation("I5", "one_memory_is_two_members", "recovery/quorum.cc",
             "counts || (MemberOf(state, answer) == &member &&", "counts || (",
             "//tests/unit/recovery:quorum_test", "QuorumTest.AMembersMemoryCountsUnderAnyNameButOnce"),
    Mutation("I1", "recovery_knows_members_by_name", "recovery/quorum.cc",
             "if (same != nullptr) return same;",
             "if (same != nullptr && same->address == answer.address) return same;",
             "//tests/unit/recovery:quorum_test", "QuorumTest.AMembersMemoryCountsUnderAnyNameButOnce"),
    Mutation("I5", "member_with_a_base_above_the_checkpoint", PLAN,
             "if (replica.base > synced_ + 1) {", "if (replica.base > issued_ + 100) {",
             MEMBERS, "ReplicatorTest.AMemberComesBackOnlyWithABaseAtTheCheckpoint"),
    Mutation("I6", "trim_before_the_note_returned", "client/engine/replicator.h",
             "Seq checkpoint() const { return noted_.checkpoint; }",
             "Seq checkpoint() const { return synced_ > noted_.checkpoint ? synced_ : "
             "noted_.checkpoint; }",
             CORE, "ReplicatorTest.TrimAndCutFollowTheNoteNotTheSync"),
    Mutation("I6", "no_deadline_before_k_tau", CC,
             "if (oldest_uncheckpointed_ns(now) > options_.k * options_.tau_ns - 2 * "
             "options_.delta_ns) {",
             "if (now < 0) {", CORE, "ReplicatorTest.NothingIsIssuedNearTheDeadline"),
    Mutation("I6", "issuer_does_not_wait_for_room", "client/engine/pipeline.cc",
             "SALIUS_RETURN_IF_ERROR(impl.AwaitWindow(ring_bytes));",
             "SALIUS_RETURN_IF_ERROR(impl.HealthLocked());",
             PIPE, "PipelineTest.AFullLogHoldsAnIssuerUpUntilThereIsACheckpoint"),
    Mutation("I6", "replica_trims_for_anybody", "replica/acceptor_frames.cc",
             "if (session != volume->slot.session) return Standing::kBadSession;",
             "if (session == 0) return Standing::kBadSession;",
             "//tests/unit/replica:acceptor_memory_test", "AcceptorTest.TrimOfAnotherSessionDropsNothing"),
    Mutation("I7", "decision_not_verified", "recovery/merge.cc",
             "DigestOf(records) != decision.digest", "false",
             "//tests/unit/recovery:merge_test", "DecisionTest.TheDecidedRecordsAreVerified"),
    Mutation("I7", "decision_ignored_by_a_rerun", "recovery/recovery.cc",
             "    if (decision_.has_value()) {\n      SALIUS_RETURN_IF_ERROR(ResumeDecision());",
             "    if (decision_.has_value() && false) {\n      SALIUS_RETURN_IF_ERROR(ResumeDecision());",
             "//tests/unit/recovery:recovery_rerun_test", "RecoveryTest.*"),
    Mutation("I8", "failed_sync_is_retried", PLAN[:-len("replicator_plan.cc")] + "replicator.cc",
             "  sync_in_flight_ = false;\n  if (!failure_.ok()) return;\n  if (!status.ok()) {",
             "  sync_in_flight_ = false;\n  if (!failure_.ok()) return;\n  if (false) {",
             PIPE, "PipelineTest.AFailedSyncMakesEveryFurtherCallFail"),
    Mutation("I1", "sync_without_the_flush_of_the_drive", "log/volume_dir.cc",
             "  return FdatasyncFd(file_fd);", "  return file_fd < 0 ? absl::InternalError(\"\") : absl::OkStatus();",
             "//tests/unit/engine_volume:sync_test", "*TheDrivesCacheIsFlushedWhateverNeighboursDid*"),
    Mutation("I1", "checkpoint_without_asking_ext4", "client/engine/volume_apply.cc",
             "  SALIUS_RETURN_IF_ERROR(dir.CheckSynced());\n", "",
             "//tests/unit/engine_volume:volume_test", "FailureTest.NoCheckpointIsMadeOnceExt4HasFoundAnError"),
    Mutation("I1", "fsync_of_a_bulk_file_without_asking_ext4", "client/engine/bulk.cc",
             "  if (synced.ok()) synced = dir.CheckSynced();\n", "",
             "//tests/unit/engine_volume:volume_test", "FailureTest.FsyncOfABulkFileFailsOnceExt4HasFoundAnError"),
    Mutation("I1", "stable_log_without_asking_ext4", "client/engine/pipeline_workers.cc",
             "        if (status.ok()) status = dir.CheckSynced();\n", "",
             "//tests/unit/engine_volume:volume_test",
             "FailureTest.NothingIsDurableInTheStableLogOnceExt4HasFoundAnError"),
    Mutation("I1", "recovery_without_asking_ext4", "recovery/replay_target.cc",
             "context.ext4 == nullptr ?", "true ?", "//tests/unit/recovery:replay_target_test",
             "BackingFileSystemTest.NothingCountsAsSyncedOnceExt4HasFoundAnError"),
    Mutation("I1", "what_ext4_says_in_the_log_is_ignored", "common/ext4_watch.cc",
             "  if (!severe_.empty()) {", "  if (!severe_.empty() && false) {", "//tests/unit/engine_volume:ext4_watch_test",
             "Ext4WatchTest.CriticalMessageIsReported"),
    Mutation("I1", "fsync_of_a_bulk_file_vouches_for_older_records", "client/engine/bulk.cc",
             " || unwatched > checkpoint) {", " || unwatched == UINT64_MAX) {",
             "//tests/unit/engine_volume:volume_records_test", "BulkTest.RecordsOfAForgottenNodeAreCoveredByACheckpoint"),
    Mutation("I1", "fsync_of_a_bulk_file_vouches_for_a_closed_descriptor", "client/engine/bulk.cc",
             "  if (unwatched_writes > node.synced_writes) {", "  if (unwatched_writes == UINT64_MAX) {",
             "//tests/unit/engine_volume:volume_records_test",
             "BulkTest.BulkDataOfAClosedDescriptorIsSyncedWithTheFileSystem"),
    Mutation("I8", "applied_mark_relied_on_during_a_sync", "client/engine/pipeline_workers.cc",
             "  applied_mark.SyncBegins();\n", "",
             PIPE, "PipelineTest.DuringASyncTheAppliedMarkSaysNothing"),
    Mutation("I8", "last_sync_does_not_fail_the_session", "client/engine/pipeline_workers.cc",
             "    impl.core.OnSynced(impl.clock.MonotonicNanos(), before, status);\n", "",
             PIPE, "PipelineTest.AFailedSyncNowIsFinal"),
    Mutation("I8", "failed_apply_is_ignored", "client/engine/pipeline_workers.cc",
             "      if (!status.ok()) {\n        const RecordHeader& header",
             "      if (!status.ok()) core.OnApplied(batch[count]->seq());\n"
             "      if (false) {\n        const RecordHeader& header",
             PIPE, "PipelineTest.AFailedApplyMakesEveryFurtherCallFailAndKeepsTheLog"),
    Mutation("I8", "applied_with_those_before_it", "client/engine/pipeline_workers.cc",
             "core.OnApplied(batch[count - 1]->seq());", "core.OnApplied(batch.back()->seq());",
             PIPE, "PipelineTest.WhatWasAppliedBeforeAFailureCountsAsApplied"),
    Mutation("I2", "applied_before_it_is_durable", "client/engine/pipeline_workers.cc",
             "const Seq last = std::min(core.durable(), core.applied() + kApplyTogether);",
             "const Seq last = std::min(core.issued(), core.applied() + kApplyTogether);",
             PIPE, "PipelineTest.RecordsAreAppliedOnceAndInOrderFromManyThreads"),
    Mutation("I8", "applied_although_the_volume_failed", "client/engine/pipeline_workers.cc",
             " && !failed.load()", "", PIPE, "PipelineTest.NothingMoreIsAppliedOnceTheVolumeHasFailed"),
    Mutation("I1", "index_of_what_was_trimmed_is_read", "replica/log_store.cc",
             "if (held_.Contains(seq)) {", "if (IndexAt(seq) != 0) {",
             "//tests/unit/replica:log_store_test", "LogStoreTest.WhatWasTrimmedIsNotReadInPlaceOfWhatIsMissing"),
    Mutation("I1", "asked_for_taken_for_brought", "recovery/collect.cc",
             "for (const RecordView& record : collected_[i].records.views()) coverage_.Add(record.seq());",
             "for (Seq seq = pieces_[0].after + 1; seq <= pieces_.back().last + i - i; ++seq) coverage_.Add(seq);",
             "//tests/unit/recovery:collect_test", "CollectTest.WhatAReplicaThatBreaksOffLeavesIsBroughtByOthers"),
    Mutation("I5", "fetched_from_another_memory", "recovery/collect.cc",
             "if (incarnation == peer_->answer->incarnation) return", "if (incarnation > 0) return",
             "//tests/unit/recovery:collect_test", "CollectTest.AReplicaWhoseMemoryIsAnotherOneNowDoesNotCount"),
    Mutation("I5", "brought_less_and_counts", "recovery/collect.cc",
             "mine.status.ok() ? inventory.contiguous : highest", "mine.status.ok() ? before : highest",
             "//tests/unit/recovery:collect_test", "CollectTest.AReplicaThatBringsLessThanItSaidDoesNotCount"),
    Mutation("I5", "contradiction_counts", "recovery/collect.cc",
             "std::max(inventory.contiguous, inventory.highest);", "inventory.highest;",
             "//tests/unit/recovery:collect_test", "CollectTest.AnAnswerThatContradictsItselfDoesNotCount"),
    Mutation("I8", "small_direct_writes_count_as_their_bytes", "client/engine/space.h",
             "SpaceCharge(Op::kWrite, bytes)));", "bytes));",
             "//tests/unit/engine_volume:volume_test", "SpaceGuardTest.SmallDirectWritesCountAsTheBlocksThatTheyTake"),
    Mutation("I8", "others_on_the_disk_are_not_looked_for", "client/engine/space.cc",
             "return margin_ == 0 && CoarseMillis() - looked_ms_.load() > kLookEveryMs;", "return margin_ == 1;",
             "//tests/unit/engine_volume:volume_test", "SpaceGuardTest.WhatOthersTookIsSeenSoon"),
    Mutation("I8", "allocated_and_still_counted_on", "client/engine/space.cc",
             "  Issued(charge);  // no write counts on it any more\n", "  unapplied_.fetch_add(charge);\n",
             "//tests/unit/engine_volume:volume_test", "SpaceGuardTest.WhatIsAllocatedLeavesTheBudgetAtOnce"),
    Mutation("I8", "what_was_let_through_is_not_held", "client/engine/space.cc",
             "  uint64_t keep = held_.load() + margin_;\n", "  uint64_t keep = margin_;\n",
             "//tests/unit/engine_volume:volume_test",
             "SpaceGuardTest.WhatAWriteWasLetThroughWithIsNotAllocatedMeanwhile"),
    Mutation("I8", "blocks_that_a_truncate_frees_counted_on", "client/engine/space.cc",
             "  SALIUS_RETURN_IF_ERROR(settle());\n", "  (void)settle;\n",
             "//tests/unit/engine_volume:volume_records_test",
             "SpaceTest.AWriteCountsOnNoBlocksThatAnUnappliedTruncateFrees"),
    Mutation("I8", "btrfs_believed_about_what_is_free", "client/engine/space.cc",
             "margin_(fs::CopiesOnWrite(root_fd) ? kCowMargin : 0)", "margin_(0)",
             "//tests/unit/engine_volume:volume_test", "SpaceTest.FullBtrfsRefusesBeforeTheAck"),
    Mutation("I1", "until_drops_what_was_acknowledged", "recovery/recovery.cc",
             "    if (options_.force) return absl::OkStatus();\n    report_.outcome = RecoveryOutcome::kBadRequest;",
             "    return absl::OkStatus();\n    report_.outcome = RecoveryOutcome::kBadRequest;",
             "//tests/unit/recovery:recovery_rerun_test", "RecoveryTest.UntilDecidesNothingWithoutForce:RecoveryTest.UntilDropsOnlyWhenForced"),
    Mutation("I1", "init_above_a_volume", "log/volume_create.cc",
             "  SALIUS_RETURN_IF_ERROR(CheckNoOtherVolume(root.get(), backing));\n",
             "  (void)&CheckNoOtherVolume;\n",
             "//tests/unit/log:volume_dir_test", "CreateVolumeTest.ADirectoryWithAVolumeInItIsRefusedAndNoIdIsTaken"),
    Mutation("I1", "what_a_refused_rename_took_away_stays_away", "recovery/replay_plan.cc",
             "status = left_out ? LeaveOut(*record) : Take(*record);",
             "status = left_out ? absl::OkStatus() : Take(*record);",
             "//tests/unit/recovery:refusal_test", "RefusalOnExt3Test.ADirectoryThatFindsNoRoomAmongOthersStaysWhereItWas"),
    Mutation("I1", "last_attribute_only_behind_the_others", "recovery/replay_xattrs.cc",
             "  if (!found || there == *last.value) return true;\n", "  if (there == *last.value) return true;\n",
             "//tests/unit/recovery:replay_xattrs_test", "XattrOrderTest.WhatFittedBesideWhatWasRemovedDoes"),
    Mutation("I1", "attribute_of_before_the_log_stays_in_the_way", "recovery/replay_xattrs.cc",
             "    if (body.name == *last.name) return true;\n", "",
             "//tests/unit/recovery:replay_xattrs_test", "XattrOrderTest.WhatIsReplacedTwiceNeedsNoRoom"),
    Mutation("I1", "acl_of_the_session_stays_in_the_way", "recovery/replay_xattrs.cc",
             "return fs::RemoveXattr(fd, *last->name);", "return absl::OkStatus();",
             "//tests/unit/recovery:replay_xattrs_test", "XattrOrderTest.AnAclThatIsReplacedAtTheEndNeedsNoOtherRoom"),
    Mutation("I1", "attributes_in_one_order_only", "recovery/replay_xattrs.cc",
             "constexpr int kOrders = 200;", "constexpr int kOrders = 0;",
             "//tests/unit/recovery:replay_xattrs_test", "XattrOrderTest.WhatFittedInTheOrderOfTheSessionDoes"),
    Mutation("I1", "attributes_not_as_the_session_set_them", "recovery/replay_xattrs.cc",
             "  if (taken) return absl::OkStatus();", "  static_cast<void>(taken);",
             "//tests/unit/recovery:replay_xattrs_test", "FullInodeTest.WhatFollowsFromNoOrderOfTheLastValuesDoes"),
    Mutation("I7", "cut_off_among_the_orders", "recovery/replay_xattrs.cc",
             "  if (!found || there == *last.value) return true;\n", "  if (!found) return true;\n",
             "//tests/unit/recovery:replay_xattrs_test",
             "RefusedXattrTest.WhereAnEarlierRunWasCutOffItIsLeftOutAllTheSame"),
    Mutation("I2", "permission_bits_of_an_acl_that_is_left_out", "recovery/replay_xattrs.cc",
             "last->removable && (object.create.has_value() || *last->name != kAccessAclXattr);", "last->removable;",
             "//tests/unit/recovery:replay_xattrs_test", "RefusedXattrTest.AnAclThatIsLeftOutChangesNoPermissionBits"),
    Mutation("I2", "capability_stays_behind_a_write", "recovery/replay_plan.cc",
             "    TakeCapabilityAway(object);  // of what a program stores into a map no record says so\n", "",
             "//tests/unit/recovery:replay_plan_test", "ReplayPlanTest.DataTakeAFilesCapabilityAway"),
    Mutation("I1", "earlier_acl_of_the_session_not_set_again", "recovery/replay_xattrs.cc",
             "(set && name == kAccessAclXattr && !at_t->second.value.has_value())",
             "(set && name == kAccessAclXattr && at_t->second.seq != seq)",
             "//tests/unit/recovery:replay_xattrs_test", "XattrOrderTest.AnAclThatIsReplacedAtTheEndNeedsNoOtherRoom"),
    Mutation("I1", "hidden_link_taken_for_a_name", "recovery/replay_names.cc",
             "st.st_nlink > 1 + hidden", "st.st_nlink > 1 + 0 * hidden",
             "//tests/unit/recovery:replay_test", "ReplayTest.AFileThatIsKeptDoesNotGoWithItsHiddenLink"),
    Mutation("I2", "times_on_the_disk_put_back", "recovery/replay_data.cc",
             "  if (!object.create.has_value()) return absl::OkStatus();\n",
             "  if (!object.create.has_value()) return ApplyAttr(fd, record.header, record.body());\n",
             "//tests/unit/recovery:replay_test", "ReplayTest.TimesThatAreOnTheDiskAreNotPutBack"),
    Mutation("I1", "owner_on_the_disk_set_again", "recovery/replay_data.cc",
             "  if (!object.create.has_value()) return absl::OkStatus();\n", "",
             "//tests/unit/recovery:replay_test", "ReplayTest.AnOwnerThatIsOnTheDiskTakesNoCapabilityAway"),
    Mutation("I2", "capability_stays_behind_a_change_of_owner", "recovery/replay_plan.cc",
             "      if ((body.mask & (kAttrUid | kAttrGid)) != 0) TakeCapabilityAway(object);\n", "",
             "//tests/unit/recovery:replay_plan_test", "ReplayPlanTest.AChangeOfOwnerTakesAFilesCapabilityAway"),
    Mutation("I7", "full_disk_keeps_what_goes", "recovery/replay.cc",
             "  if (removed == 0) return replayed;", "  if (removed < UINT64_MAX) return replayed;",
             "//tests/unit/recovery:replay_disk_test", "ReplaySpaceTest.WhatTRemovedMakesRoomForWhatItHas"),
    Mutation("I1", "more_than_what_goes_makes_room", "recovery/replay_names.cc",
             "objects_.Has(there.id) && !targets_.contains(there.id) &&", "objects_.Has(there.id) &&",
             "//tests/unit/recovery:replay_disk_test", "ReplaySpaceTest.WhatTRemovedMakesRoomForWhatItHas"),
    Mutation("I8", "end_within_a_shared_block_takes_no_room", "client/engine/volume_files.cc",
             "  if (shared_block_bytes == 0) return SpaceGuard::Hold();",
             "  if (upto < UINT64_MAX) return SpaceGuard::Hold();",
             "//tests/unit/engine_volume:volume_test", "SpaceTest.EndWithinASharedBlockIsRefusedOnAFullDisk"),
    Mutation("I7", "times_that_no_record_takes", "client/engine/attr.cc",
             "return nanos >= 0 && nanos < 1'000'000'000;", "return nanos >= 0;",
             "//tests/unit/engine_volume:volume_test", "AttrTest.NanosecondsThatNoRecordTakesAreRefused"),
    Mutation("I1", "kept_file_goes_with_the_name_it_stands_under", "recovery/replay_names.cc",
             "    const bool astray = known && IsAstray(there.id);",
             "    const bool astray = known && there.id == kNoFileId && IsAstray(there.id);",
             "//tests/unit/recovery:replay_test", "ReplayTest.AFileThatIsKeptDoesNotGoWithTheNameItStandsUnderByNow"),
    Mutation("I1", "target_too_long_stops_recovery", "recovery/refusal.cc",
             "      return change != Change::kAttribute && change != Change::kXattr;",
             "      return change == Change::kName || change == Change::kNewName;",
             "//tests/unit/recovery:refusal_test", "RefusalOnSmallBlocksTest.ALinkToATargetThatIsTooLongIsLeftOut"),
    Mutation("I2", "permission_bits_of_an_acl_that_was_taken_back_forgotten", "recovery/replay_data.cc",
             "  if (xattr.name != kAccessAclXattr ||", "  if (xattr.name != std::string() ||",
             "//tests/unit/recovery:replay_xattrs_test", "XattrOrderTest.PermissionBitsFollowFromTheLastOfAclAndChmod"),
    Mutation("I4", "promise_in_one_copy_of_its_slot", "replica/acceptor.cc",
             "    arena_.WriteSlot(volume->slot_index, slot);\n    arena_.WriteSlot(volume->slot_index, slot);\n",
             "    arena_.WriteSlot(volume->slot_index, slot);\n",
             "//tests/unit/replica:acceptor_memory_test", "AcceptorTest.DamageToEitherCopyOfItsSlotTakesNoPromiseBack"),
    Mutation("I6", "abandoned_while_it_is_recovered", "replica/acceptor.cc",
             "  volume.last_life_ns = std::max(volume.last_life_ns, tick_ns_);\n", "  static_cast<void>(volume);\n",
             "//tests/unit/replica:acceptor_memory_test", "AcceptorTest.AbandonAfterCountsFromTheLastFenceOrFetchToo"),
    Mutation("I5", "damaged_slot_found_by_each_process", "replica/arena.cc",
             "    if (slots_[i].damaged) FreeSlot(i);\n", "",
             "//tests/unit/replica:arena_test", "ArenaSlotTest.DamagedSlotIsFoundOnce"),
    Mutation("I5", "damaged_records_freed_in_the_same_incarnation", "replica/log_store_restart.cc",
             "  if (report.damaged > 0) arena_.NewIncarnation();\n", "",
             "//tests/unit/replica:log_store_restart_test", "LogStoreTest.BadRecordCostsItselfOnlyAndIsCounted"),
    Mutation("I1", "adoption_without_a_path_is_damage", "log/record_body.cc",
             "(adopt.path.empty() && adopt.handle.empty())", "adopt.path.empty()",
             "//tests/unit/engine_volume:volume_records_test",
             "RecordsTest.AdoptOfAFileWhosePathIsTooLongHasItsHandleAlone"),
    Mutation("I1", "left_out_although_more_follows", "recovery/replay_data.cc",
             "may_be && seq == object.last_seq ?", "may_be ?",
             "//tests/unit/recovery:replay_xattrs_test",
             "RefusedXattrTest.AttributeWithoutRoomBehindWhichAnotherChangeFollowsIsAnError"),
    Mutation("I1", "name_left_out_although_more_follows", "recovery/replay_names.cc",
             ": plan_.last_names.contains(seq);", ": true;",
             "//tests/unit/recovery:refusal_test", "MostLinksTest.OneMoreBehindWhichTheDirectoryChangesIsAnError"),
    Mutation("I1", "what_is_not_performed_does_not_follow", "recovery/replay_plan.cc",
             "      NoteOrder(*record);\n      const bool left_out = left_out_.contains(record->seq());\n"
             "      if (!left_out && cancelled_.contains(record->seq())) continue;\n",
             "      const bool left_out = left_out_.contains(record->seq());\n"
             "      if (!left_out && cancelled_.contains(record->seq())) continue;\n      NoteOrder(*record);\n",
             "//tests/unit/recovery:replay_xattrs_test", "RefusedXattrTest.OnlyTheVeryLastIsLeftOut"),
    Mutation("I1", "left_out_on_a_full_disk", "recovery/refusal.cc",
             "space.ok() && space->bytes_avail >= kRoomBytes", "space.ok()",
             "//tests/unit/recovery:replay_xattrs_test", "RefusedXattrTest.AttributeIsNotLeftOutOnAFullDisk"),
    Mutation("I1", "value_before_the_refused_one_cleared", "recovery/replay_xattrs.cc",
             "  if (!found || there == *last.value) return true;\n", "  if (found || there.empty()) return true;\n",
             "//tests/unit/recovery:replay_xattrs_test", "RefusedXattrTest.ValueBeforeTheOneThatIsLeftOutStays"),
    Mutation("I1", "forced_recovery_removes_what_has_no_directory", "recovery/replay_names.cc",
             "    SALIUS_RETURN_IF_ERROR(KeepHomeless());\n", "",
             "//tests/unit/recovery:replay_test", "ReplayTest.ForceKeepsWhatBelongsIntoAMissingDirectory"),
    Mutation("I1", "one_memory_counts_twice", PLAN, "    if (SameMemoryAs(static_cast<int>(i)) >= 0) continue;\n", "",
             MEMBERS, "ReplicatorTest.TheSameMemoryUnderTwoAddressesCountsOnce"),
    Mutation("I5", "memory_on_a_disk_keeps_its_incarnation", "replica/arena_file.cc",
             "  if (went_back_) arena_->NewIncarnation();\n", "",
             "//tests/unit/replica:arena_file_test", "ArenaFileOnDiskTest.AnotherBootIsANewIncarnation"),
    Mutation("I6", "stopped_replica_abandons", "replica/acceptor.cc",
             "if (stopped) volume", "if (stopped && false) volume",
             "//tests/unit/replica:acceptor_memory_test", "AcceptorTest.TimeInWhichTheReplicaStoodStillAbandonsNothing"),
    Mutation("I1", "log_larger_than_the_stable_log", "client/engine/volume.cc",
             "stable.capacity() < dir.config.stable_log_bytes", "false",
             "//tests/unit/engine_volume:volume_test", "FilesTest.AConfigThatNamesALargerStableLogIsRefused"),
    Mutation("I2", "written_where_another_write_ended", "client/engine/volume_apply.cc",
             " || next.arg0 != end) break;", ") break;",
             "//tests/unit/engine_volume:volume_records_test",
             "OverlayTest.WritesThatFollowOneAnotherAreAppliedWithOneCall"),
    Mutation("I10", "status_shows_the_configured_mode", "client/engine/pipeline.cc",
             'core.counting_acks() ? "replicated" : "local"',
             'impl.peers.empty() ? "local" : "replicated"',
             PIPE, "PipelineTest.ReplicasThatNobodyRunsLeaveItLocalAndSayWhy"),
    Mutation("I10", "who_logs_waits_for_who_reads", "common/log.cc",
             "if (lines_.size() >= kLogQueueLines) {",
             "while (lines_.size() >= kLogQueueLines) {\n"
             "      mu_.unlock();\n      std::this_thread::yield();\n      mu_.lock();\n    }\n"
             "    if (lines_.size() >= kLogQueueLines) {",
             "//tests/unit:common_log_test",
             "LogTest.InTheBackgroundNobodyWaitsForWhoReadsStderr"),
]


def run(mutation: Mutation) -> str:
    """Returns "" when the test noticed, else what went wrong."""
    path = ROOT / mutation.path
    source = path.read_text()
    if source.count(mutation.old) != 1:
        return f"pattern found {source.count(mutation.old)} times in {mutation.path}"
    try:
        path.write_text(source.replace(mutation.old, mutation.new))
        build = subprocess.run(["bazel", "build", "--noshow_progress", mutation.target],
                               cwd=ROOT, capture_output=True, text=True, check=False)
        if build.returncode != 0:
            return "does not build:\n" + build.stderr[-2000:]
        result = subprocess.run(
            ["bazel", "test", "--noshow_progress", "--nocache_test_results",
             "--test_output=summary", "--test_timeout=240", f"--test_filter={mutation.test}",
             mutation.target], cwd=ROOT, capture_output=True, text=True, check=False)
        return "" if result.returncode == 3 else "no test noticed"
    finally:
        path.write_text(source)
        unmount_leftovers()


def unmount_leftovers() -> None:
    """Unmounts what a test that a planted bug ended left mounted in Bazel's tree, where it forbids the next build."""
    root = subprocess.run(["bazel", "info", "execution_root"], cwd=ROOT, capture_output=True, text=True,
                          check=True).stdout.strip()
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        where = line.split()[1]
        if where.startswith(root + "/"):
            subprocess.run(["umount", "--lazy", where], check=True)


def check_patterns() -> int:
    """Every mutation is still where the list looks for it; builds nothing."""
    wrong = 0
    for m in MUTATIONS:
        times = (ROOT / m.path).read_text().count(m.old)
        if times != 1 or m.old == m.new:
            wrong += 1
            print(f"{m.name}: its pattern is in {m.path} {times} times")
    print(f"{len(MUTATIONS) - wrong} of {len(MUTATIONS)} planted bugs have their place")
    return 1 if wrong or not MUTATIONS else 0


def main(argv: list[str]) -> int:
    wanted = list(MUTATIONS)
    for number in signal.SIGTERM, signal.SIGHUP:  # the code is put back
        signal.signal(number, lambda *_: sys.exit(143))
    if argv == ["--patterns"]:
        return check_patterns()
    if argv == ["--list"]:
        for m in wanted:
            print(f"{m.guarantee:4} {m.name:45} {m.path}")
        return 0
    if argv:
        wanted = [m for m in wanted if m.name in argv]
        if len(wanted) != len(set(argv)):
            print("unknown mutation; --list shows them", file=sys.stderr)
            return 2
    paths = sorted({m.path for m in wanted})
    dirty = subprocess.run(["git", "status", "--porcelain", "--", *paths], cwd=ROOT,
                           capture_output=True, text=True, check=True).stdout
    if dirty:
        print(f"commit first, these have changes:\n{dirty}", file=sys.stderr)
        return 2
    noticed = 0
    for mutation in wanted:
        problem = run(mutation)
        noticed += problem == ""
        print(f"{mutation.guarantee:4} {mutation.name:45} "
              f"{'noticed by ' + mutation.test if problem == '' else 'NOT NOTICED: ' + problem}",
              flush=True)
    print(f"{noticed} passed, {len(wanted) - noticed} failed")
    return 0 if noticed == len(wanted) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

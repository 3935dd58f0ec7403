#include "client/cli/status_text.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "client/cli/health.h"

namespace salius::cli {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

control::VolumeStatusResponse Mounted() {
  control::VolumeStatusResponse status;
  status.set_volume(std::string(16, '\x11'));
  status.set_backing("/srv/data");
  status.set_mountpoint("/mnt/data");
  status.set_serving(true);
  status.set_epoch(3);
  status.set_mode("local");
  status.set_mode_detail("replica b:7400 does not answer");
  status.set_acks(2);
  status.set_names("async");
  status.set_contract("ordered,osync-exempt=o_sync");
  status.set_checkpoint(10);
  status.set_applied(20);
  status.set_durable(30);
  status.set_issued(40);
  auto* const replica = status.add_replicas();
  replica->set_address("b:7400");
  replica->set_member(true);
  replica->set_problem("no route");
  replica->set_incarnation(0xabc);
  return status;
}

TEST(StatusTextTest, MountedVolumeShowsModeMarksAndReplicas) {
  const std::string text = MountedText(Mounted());
  for (const char* const part :
       {"11111111-1111-1111-1111-111111111111", "local (replica b:7400 does not answer)",
        "contract:     ordered,osync-exempt=o_sync", "names:        async", "checkpoint:   10", "applied:      20", "durable:      30", "issued:       40", "b:7400",
        "member", "disconnected", "no route", "0000000000000abc"}) {
    EXPECT_TRUE(Contains(text, part)) << part << "\n" << text;
  }
  EXPECT_FALSE(Contains(text, "FAILED"));
}

TEST(StatusTextTest, GateOfAMountIsCounted) {
  control::VolumeStatusResponse status = Mounted();
  EXPECT_FALSE(Contains(MountedText(status), "gate:"));
  status.mutable_gate()->set_processes(3);
  status.mutable_gate()->set_waiting_answers(1);
  status.mutable_gate()->set_waited_answers(5);
  EXPECT_TRUE(Contains(MountedText(status),
                       "gate:         3 processes inside; 1 answers to others wait, 4 have waited\n"))
      << MountedText(status);
}

TEST(StatusTextTest, SealedDatagramsAndRefusedOnesAreSaid) {
  control::VolumeStatusResponse status = Mounted();
  EXPECT_TRUE(Contains(MountedText(status), "datagrams:    not sealed"));
  status.mutable_sealing()->set_key_changes(3);
  for (const char* const reason : {"replayed", "wrong_tag"}) {
    auto* const refusal = status.mutable_sealing()->add_refusals();
    refusal->set_reason(reason);
    refusal->set_datagrams(4);
  }
  EXPECT_TRUE(Contains(MountedText(status),
                       "datagrams:    sealed; 8 refused, the key was changed 3 times\n"))
      << MountedText(status);
  const std::string json = MountedJson(status);
  EXPECT_TRUE(
      Contains(json, R"("sealing":{"key_changes":3,"refused":{"replayed":4,"wrong_tag":4}})"))
      << json;
}

TEST(StatusTextTest, FullPatchMemoryIsSaid) {
  control::VolumeStatusResponse status = Mounted();
  EXPECT_FALSE(Contains(MountedText(status), "patch memory:"));
  status.mutable_patches()->set_fetch("lazy");
  status.mutable_patches()->set_bytes(1 << 20);
  status.mutable_patches()->set_limit_bytes(2 << 20);
  EXPECT_TRUE(Contains(MountedText(status), "patch memory: 1.0 MiB of 2.0 MiB, fetch=lazy\n"))
      << MountedText(status);
  status.mutable_patches()->set_bytes(2 << 20);
  EXPECT_TRUE(Contains(MountedText(status), "fetch=lazy; full: writers wait\n"));
}

TEST(StatusTextTest, DurationUnderOneSecondIsNotZero) {
  control::VolumeStatusResponse status = Mounted();
  status.set_mode_for_ms(999);
  EXPECT_TRUE(Contains(MountedText(status), ", for less than 1s\n"));
  status.set_mode_for_ms(65'000);
  EXPECT_TRUE(Contains(MountedText(status), ", for 1m5s\n"));
}

control::VolumeStatusResponse Healthy() {
  control::VolumeStatusResponse status;
  status.set_serving(true);
  status.set_mode("replicated");
  status.set_members(2);
  status.add_replicas();
  status.add_replicas();
  return status;
}

control::VolumeStatusResponse Changed(
    const std::function<void(control::VolumeStatusResponse&)>& change) {
  control::VolumeStatusResponse status = Healthy();
  change(status);
  return status;
}

TEST(HealthTest, EachStateHasAWordAndACodeOfItsOwn) {
  using Status = control::VolumeStatusResponse;
  const auto judge = [](const std::function<void(Status&)>& change) {
    const HealthLevel health = JudgeMounted(Changed(change)).health;
    return std::string(HealthName(health)) + " " + std::to_string(ExitCodeOf(health));
  };
  EXPECT_EQ(judge([](Status&) {}), "healthy 0");
  EXPECT_EQ(judge([](Status& s) { s.set_members(1); }), "degraded 10");
  EXPECT_EQ(judge([](Status& s) { s.mutable_replicas(1)->set_control_problem("blocked"); }),
            "degraded 10");
  EXPECT_EQ(judge([](Status& s) { s.set_mode("local"); }), "local 11");
  EXPECT_EQ(judge([](Status& s) { s.set_failure("disk"); }), "failed 1");
  EXPECT_EQ(judge([](Status& s) { s.set_serving(false); }), "busy 14");
  EXPECT_EQ(judge([](Status& s) { s.add_recoveries()->set_forced(true); }), "given-up 15");
  EXPECT_EQ(judge([](Status& s) {
              s.add_recoveries()->set_forced(true);
              s.mutable_recoveries(0)->set_acknowledged(true);
            }),
            "healthy 0");
  EXPECT_EQ(judge([](Status& s) {
              s.set_mode("local");
              s.clear_replicas();
            }),
            "healthy 0")
      << "as configured";
}

TEST(HealthTest, OfSeveralVolumesTheWorstCounts) {
  EXPECT_LT(HealthLevel::kHealthy, HealthLevel::kDegraded);
  EXPECT_LT(HealthLevel::kDegraded, HealthLevel::kLocal);
  EXPECT_LT(HealthLevel::kLocal, HealthLevel::kHung);
  EXPECT_LT(HealthLevel::kHung, HealthLevel::kNeedsRecovery);
  EXPECT_LT(HealthLevel::kNeedsRecovery, HealthLevel::kFailed);
}

TEST(HealthTest, SilentVolumeIsJudgedByItsLockAndState) {
  VolumeState state;
  RecoveryNotes notes;
  EXPECT_EQ(JudgeUnmounted(state, notes, "", false).health, HealthLevel::kNotMounted);
  EXPECT_EQ(JudgeUnmounted(state, notes, "pid 5", false).health, HealthLevel::kBusy);
  EXPECT_EQ(JudgeUnmounted(state, notes, "pid 5", true).health, HealthLevel::kHung);
  state.open = true;
  EXPECT_EQ(JudgeUnmounted(state, notes, "", false).health, HealthLevel::kNeedsRecovery);
  EXPECT_EQ(JudgeUnmounted(state, notes, "pid 5", false).health, HealthLevel::kBusy);
  state.open = false;
  RecoveryNote note;
  note.given_up = {{1, 2}};
  notes.Put(note);
  EXPECT_EQ(JudgeUnmounted(state, notes, "", false).health, HealthLevel::kGivenUp);
}

TEST(StatusTextTest, MountedVolumeShowsDaemonTimesAndLosses) {
  control::VolumeStatusResponse status = Healthy();
  status.set_pid(77);
  status.set_log_file("/var/log/x.log");
  status.set_mode_since_unix_ms(1'700'000'000'000);
  status.set_mode_for_ms(61'000);
  status.add_warnings("replica a is on this host");
  auto* const recovery = status.add_recoveries();
  recovery->set_epoch(6);
  recovery->set_decided(228);
  recovery->set_forced(true);
  recovery->set_given_up("records 229-240");
  const std::string text = MountedText(status);
  for (const char* const part :
       {"health:       given-up", "pid 77", "/var/log/x.log", "2023-11-14T22:13:20Z, for 1m1s",
        "WARNING:      replica a is on this host", "epoch 6 up to record 228",
        "GIVEN UP:     records 229-240"}) {
    EXPECT_TRUE(Contains(text, part)) << part << "\n" << text;
  }
}

TEST(StatusTextTest, DrainingVolumeSaysSo) {
  control::VolumeStatusResponse status = Mounted();
  EXPECT_TRUE(Contains(MountedText(status), "/mnt/data"));
  EXPECT_TRUE(Contains(MountedJson(status), "\"serving\":true"));
  status.set_serving(false);
  EXPECT_FALSE(Contains(MountedText(status), "/mnt/data"));
  EXPECT_TRUE(Contains(MountedText(status), "drained"));
  EXPECT_TRUE(Contains(MountedJson(status), "\"serving\":false"));
}

TEST(StatusTextTest, FailedVolumeSaysSo) {
  control::VolumeStatusResponse status = Mounted();
  status.set_failure("the backing disk: Input/output error");
  EXPECT_TRUE(Contains(MountedText(status), "FAILED:"));
  EXPECT_TRUE(
      Contains(MountedJson(status), "\"failure\":\"the backing disk: Input/output error\""));
}

TEST(StatusTextTest, JsonHasTheFieldsOfTheProtocol) {
  const std::string json = MountedJson(Mounted());
  for (const char* const part :
       {"\"mounted\":true", "\"mode\":\"local\"", "\"checkpoint\":10", "\"applied\":20",
        "\"durable\":30", "\"issued\":40", "\"member\":true", "\"connected\":false",
        "\"incarnation\":\"0000000000000abc\""}) {
    EXPECT_TRUE(Contains(json, part)) << part << "\n" << json;
  }
}

TEST(StatusTextTest, DamagedVolumeIdIsNotPrintedAsOne) {
  control::VolumeStatusResponse status = Mounted();
  status.set_volume("short");
  EXPECT_TRUE(Contains(MountedText(status), "unknown"));
}

TEST(StatusTextTest, OpenVolumeOfflineSaysThatItMustBeRecovered) {
  OfflineStatus status;
  status.config.replicas = {"a:7400", "b:7400"};
  status.config.acks = 2;
  status.state.open = true;
  status.state.mode = Mode::kReplicated;
  status.state.members = {{"a:7400", 0x17, 5}};
  const std::string text = OfflineText(status);
  EXPECT_TRUE(Contains(text, "open: must be recovered")) << text;
  EXPECT_TRUE(Contains(text, "member, incarnation 0000000000000017, base 5")) << text;
  EXPECT_TRUE(Contains(text, "no member")) << text;
  EXPECT_TRUE(Contains(text, "nothing: this is what the state file says")) << text;
  const std::string json = OfflineJson(status);
  EXPECT_TRUE(Contains(json, "\"mounted\":false")) << json;
  EXPECT_TRUE(Contains(json, "\"state\":\"open\"")) << json;
}

TEST(StatusTextTest, HolderOfTheLockIsNamed) {
  OfflineStatus status;
  status.in_use_by = "pid 12";
  status.state.open = true;
  EXPECT_TRUE(Contains(OfflineText(status), "pid 12, which answers no status"));
  EXPECT_FALSE(Contains(OfflineText(status), "must be recovered")) << "the holder recovers it";
}

TEST(StatusTextTest, ReplicaShowsItsVolumesAndAlarms) {
  control::ReplicaStatusResponse status;
  status.set_version("1");
  status.set_memory_bytes(1 << 30);
  auto* const volume = status.add_volumes();
  volume->set_volume(std::string(16, '\x22'));
  volume->mutable_inventory()->set_overdue(true);
  volume->mutable_inventory()->set_promised_epoch(9);
  const std::string text = ReplicaText("a:7400", status);
  EXPECT_TRUE(Contains(text, "1.0 GiB")) << text;
  EXPECT_TRUE(Contains(text, "22222222-2222-2222-2222-222222222222")) << text;
  EXPECT_TRUE(Contains(text, "OVERDUE")) << text;
  EXPECT_TRUE(Contains(text, "promised to a recovery: epoch 9")) << text;
  EXPECT_TRUE(Contains(ReplicaJson("a:7400", status), "\"overdue\":true"));
}

TEST(StatusTextTest, ReplicaShowsTheLastControlCalls) {
  control::ReplicaStatusResponse status;
  EXPECT_FALSE(Contains(ReplicaText("a:7400", status), "control calls"));
  auto* const refused = status.add_calls();
  refused->set_at_unix_ms(1'000);
  refused->set_kind("fence");
  refused->set_volume(std::string(16, '\x22'));
  refused->set_epoch(7);
  refused->set_peer("10.0.0.1:99");
  refused->set_reason("promised is epoch 8");
  auto* const accepted = status.add_calls();
  accepted->set_kind("forget");
  accepted->set_accepted(true);
  const std::string text = ReplicaText("a:7400", status);
  EXPECT_TRUE(Contains(text,
                       "1970-01-01T00:00:01Z  fence 22222222-2222-2222-2222-222222222222 epoch 7 "
                       "by 10.0.0.1:99: REFUSED, promised is epoch 8\n"))
      << text;
  EXPECT_TRUE(Contains(text, " by -\n")) << text;
}

TEST(StatusTextTest, ControlCharactersOfAPeerAreNotPrinted) {
  control::ReplicaStatusResponse replica;
  replica.set_version("1\x1b[2J\x7f");
  EXPECT_TRUE(Contains(ReplicaText("a:7400", replica), "1?[2J?"));
  control::VolumeStatusResponse mounted = Mounted();
  mounted.set_failure("\x1b[2J");
  EXPECT_FALSE(Contains(MountedText(mounted), "\x1b"));
}

TEST(StatusTextTest, BytesAreReadable) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(uint64_t{96} << 20), "96.0 MiB");
}

}  // namespace
}  // namespace salius::cli

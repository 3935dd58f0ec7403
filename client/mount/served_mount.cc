#include "client/mount/served_mount.h"

#include <sys/mount.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/fuse/mount_calls.h"
#include "client/mount/mount_options.h"
#include "client/mount/gate_metrics.h"
#include "client/mount/volume_metrics.h"
#include "client/status/socket_path.h"
#include "client/volume/fetch_policy.h"
#include "client/volume/lane_sink.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/host.h"
#include "common/log.h"
#include "common/strings.h"

namespace salius {
namespace {

uint64_t UnixMillis() {
  return static_cast<uint64_t>(std::max<int64_t>(SystemClock().RealtimeNanos(), 0)) / 1'000'000;
}

// Returns the kernel's time-outs for the log; "" when there are none.
std::string RequestTimeouts() {
  std::string text;
  for (const char* const name : {"default_request_timeout", "max_request_timeout"}) {
    const absl::StatusOr<std::string> value =
        ReadWholeFile(absl::StrCat("/proc/sys/fs/fuse/", name));
    uint64_t seconds = 0;
    if (!value.ok() || !absl::SimpleAtoi(*value, &seconds) || seconds == 0) continue;
    absl::StrAppend(&text, text.empty() ? " (" : ", ", "fs.fuse.", name, " = ", seconds, " s");
  }
  return text.empty() ? text : text + ")";
}

}  // namespace

absl::Status CutOffError(const MountCommand& command) {
  return absl::UnavailableError(absl::StrCat(
      "the kernel ended the connection of ", command.mountpoint,
      " without an unmount: by a request time-out", RequestTimeouts(),
      ", by abort in /sys/fs/fuse/connections, or by umount -f of a busy mount. Programs get "
      "ENOTCONN there until ",
      command.backing, " is mounted again"));
}

absl::StatusOr<std::unique_ptr<ServedMount>> ServedMount::Start(const Subject& subject,
                                                                std::function<void()> on_end) {
  std::unique_ptr<ServedMount> mount(new ServedMount(subject));
  SALIUS_RETURN_IF_ERROR(mount->OpenStatusSocket());
  if (subject.gate != nullptr) SALIUS_RETURN_IF_ERROR(mount->OpenGate());
  const std::string& metrics = subject.command.options.metrics;
  if (!metrics.empty()) {
    std::vector<std::shared_ptr<prometheus::Collectable>> figures = {
        std::make_shared<VolumeMetrics>(subject.volume, subject.config.acks),
        mount->front_.SharedMetrics()};
    if (mount->external_) {
      figures.push_back(
          std::make_shared<GateMetrics>([gate = mount.get()] { return gate->GateUse(); }));
    }
    SALIUS_ASSIGN_OR_RETURN(mount->metrics_, MetricsServer::Start(metrics, std::move(figures)));
  }
  SALIUS_RETURN_IF_ERROR(mount->Connect(std::move(on_end)));
  return mount;
}

ServedMount::ServedMount(const Subject& subject) : subject_(subject), front_(subject.volume) {
  if (subject.gate == nullptr) return;
  external_.emplace(
      subject.volume.stream(), subject.gate->page(), insiders_,
      [this](uint64_t nodeid) { return front_.LastChange(nodeid); },
      GatePathOf(subject.config.volume));
  front_.SetExternal(*external_);
}

control::VolumeStatusResponse::GateUse ServedMount::GateUse() const {
  const HeldAnswers::Counts answers = external_->held.counts();
  control::VolumeStatusResponse::GateUse use;
  use.set_processes(insiders_.size());
  use.set_waiting_answers(answers.waiting);
  use.set_waited_answers(answers.waited);
  return use;
}

control::VolumeStatusResponse::PatchUse ServedMount::PatchUse() const {
  const LaneSink::Figures lanes = subject_.volume.lanes().figures();
  control::VolumeStatusResponse::PatchUse use;
  use.set_fetch(std::string(FetchModeText(subject_.command.options.fetch)));
  use.set_bytes(subject_.volume.patch_memory().used());
  use.set_limit_bytes(subject_.volume.patch_memory().limit());
  use.set_put_off_bytes(lanes.put_off_bytes);
  use.set_fetched_pages(lanes.fetched_pages);
  use.set_elided_pages(lanes.elided_pages);
  return use;
}

// After the status socket, whose server makes the directory and refuses a second mount.
absl::Status ServedMount::OpenGate() {
  RecordStream& stream = subject_.volume.stream();
  SALIUS_ASSIGN_OR_RETURN(gate_server_,
                          gate::Server::Start(external_->gate_path, *subject_.gate, insiders_,
                                              [&stream](Seq seq, DurableCallback done) {
                                                stream.NotifyDurable(seq, std::move(done));
                                              }));
  return absl::OkStatus();
}

absl::Status ServedMount::OpenStatusSocket() {
  const VolumeConfig& config = subject_.config;
  SALIUS_ASSIGN_OR_RETURN(
      status_server_,
      StatusServer::Start(
          {.volume = config.volume,
           .backing = subject_.command.backing,
           .mountpoint = subject_.command.mountpoint,
           .acks = config.acks,
           .names = std::string(NameModeText(config.names)),
           .contract = ContractText(subject_.command.options.contract),
           .source = [&volume = subject_.volume] { return volume.stream().status(); },
           .started_unix_ms = UnixMillis(),
           .log_file = LogPlace(),
           .host = config.allow_same_host ? std::nullopt : std::optional(subject_.host),
           .history = &subject_.history,
           .gate = external_ ? [this] { return GateUse(); }
                             : std::function<control::VolumeStatusResponse::GateUse()>(),
           .patches = [this] { return PatchUse(); },
           .remount = [this](const std::string& options,
                             bool check_only) { return Remount(options, check_only); }}));
  return absl::OkStatus();
}

absl::Status ServedMount::Connect(std::function<void()> on_end) {
  const MountCommand& command = subject_.command;
  // Not earlier: while the dead mount exists no program writes below it.
  ClearDeadMounts(command.backing, command.mountpoint);
  SALIUS_ASSIGN_OR_RETURN(
      connection_,
      Connection::Mount(front_, {.source = command.backing,
                                 .mountpoint = command.mountpoint,
                                 .mount_flags = command.options.mount_flags,
                                 .threads = WorkerCount(command.options, AvailableCpus()),
                                 .spin_ns = SpinNanos(command.options, AvailableCpus())}));
  utab_entry_.emplace(command.backing, command.mountpoint);
  connection_->Start(std::move(on_end));
  return absl::OkStatus();
}

bool ServedMount::End(bool has_ended) {
  if (!has_ended) connection_->Unmount();
  const bool cut_off = has_ended && connection_->CutOff();
  if (cut_off) {
    SLOG_ERROR("{}; draining", Sv(CutOffError(subject_.command).message()));
  } else if (has_ended) {
    SLOG_INFO("unmounted: draining");
  }
  connection_->Join();
  utab_entry_.reset();
  front_.ReleaseAll();
  return cut_off;
}

absl::Status ServedMount::Remount(const std::string& options, bool check_only) {
  SALIUS_ASSIGN_OR_RETURN(const MountOptions wanted, ParseMountOptions({options}));
  SALIUS_RETURN_IF_ERROR(CheckRemount(subject_.command.options, subject_.config, wanted));
  const std::string failure = subject_.volume.stream().status().failure;
  if (check_only && !failure.empty() && (wanted.mount_flags & MS_RDONLY) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the volume has failed, and stays read-only: ", failure,
                     ". Unmount, and mount again, which recovers"));
  }
  if (check_only) return absl::OkStatus();
  subject_.volume.open_files().SetNoAtime(LeavesAtime(wanted), LeavesDirAtime(wanted));
  subject_.volume.name_waits().SetDirsync(SyncsNames(wanted));
  SLOG_INFO("remounted: {}", options.empty() ? "rw" : options);
  return absl::OkStatus();
}

}  // namespace salius

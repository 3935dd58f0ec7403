#include "client/fuse/connection.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "client/fuse/kernel_order.h"
#include "client/fuse/mount_calls.h"
#include "client/fuse/mount_table.h"
#include "client/fuse/write_back_limit.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/deadline.h"
#include "common/log.h"
#include "common/rseq.h"

namespace salius {
namespace {

// The largest write in one request: the kernel's own limit (256 pages) unless an administrator
// raised it.
constexpr unsigned kMaxWriteBytes = 1u << 20;
// Read-ahead and write-back requests that the kernel may have under way.
constexpr unsigned kMaxBackground = 64;

// Interrupts a worker's read(2); does nothing.
constexpr int kKickSignal = SIGUSR1;
constexpr std::chrono::milliseconds kKickInterval{20};
// The time for the last request after an unmount; it takes longer only when the file system is also
// mounted elsewhere.
constexpr std::chrono::milliseconds kLeaveBound{2000};
// The time between the end of the connection and that of the mount in a forced unmount.
constexpr std::chrono::seconds kForcedBound{2};
// The longest wait for requests, because programs may keep making new ones.
constexpr std::chrono::seconds kWriteBackBound{5};

// Set while a worker lets libfuse answer INIT.
thread_local uint64_t t_init_unique = 0;
thread_local uint64_t t_init_extra = 0;

void Init(void* front, fuse_conn_info* conn) noexcept {
  conn->max_write = kMaxWriteBytes;
  conn->max_background = kMaxBackground;
  conn->congestion_threshold = kMaxBackground * 3 / 4;
  conn->time_gran = 1;
  conn->want =
      WantedCapabilities(conn->capable, static_cast<Front*>(front)->external() != nullptr);
}

ssize_t DeviceRead(int fd, void* buf, size_t size, void*) noexcept { return ::read(fd, buf, size); }

ssize_t DeviceWritev(int fd, iovec* iov, int count, void* front) noexcept {
  KernelOrder::Answer();
  if (AnswerFilter* const filter = static_cast<Front*>(front)->filter(); filter != nullptr) {
    if (t_init_unique == 0) return SendAnswer(fd, iov, count, filter);
  }
  if (t_init_unique == 0 || count != 2 || iov[0].iov_len != sizeof(fuse_out_header) ||
      iov[1].iov_len < sizeof(fuse_init_out)) {
    return ::writev(fd, iov, count);
  }
  const auto* header = static_cast<const fuse_out_header*>(iov[0].iov_base);
  if (header->unique != t_init_unique || header->error != 0) return ::writev(fd, iov, count);
  fuse_init_out out;
  std::memcpy(&out, iov[1].iov_base, sizeof(out));
  out.flags |= FUSE_INIT_EXT | static_cast<uint32_t>(t_init_extra);
  out.flags2 |= static_cast<uint32_t>(t_init_extra >> 32);
  iovec patched[2] = {iov[0], {&out, sizeof(out)}};
  fuse_out_header patched_header = *header;
  patched_header.len = sizeof(patched_header) + sizeof(out);
  patched[0].iov_base = &patched_header;
  return ::writev(fd, patched, 2) < 0 ? -1 : static_cast<ssize_t>(iov[0].iov_len + iov[1].iov_len);
}

fuse_lowlevel_ops ConnectionOps() {
  fuse_lowlevel_ops ops = Front::Ops();
  ops.init = Init;
  return ops;
}

// Returns the flags that the kernel offers in its INIT message.
uint64_t OfferedFlags(const RawRequest& request) {
  const auto* in = request.args<fuse_init_in>();
  if (in == nullptr) return 0;
  const uint64_t high = (in->flags & FUSE_INIT_EXT) != 0 ? uint64_t{in->flags2} << 32 : 0;
  return in->flags | high;
}

// Runs `work` on the directory `path`, which this process serves, and returns its result, or the
// errno of opening the directory. It runs in another process without our descriptors: a thread here
// that waited for our own answer could not be killed, and would keep the connection (and the
// volume's lock) when the other threads are killed. `work` may make async-signal-safe calls only.
absl::StatusOr<int> RunApart(const std::string& path, int (*work)(int root)) {
  const char* const name = path.c_str();
  const pid_t child = ::fork();
  if (child < 0) return ErrnoStatus(errno, "fork");
  if (child == 0) {
    ::close_range(0, ~0U, 0);
    const int root = ::open(name, O_RDONLY | O_DIRECTORY);
    ::_exit(root < 0 ? errno : work(root));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return ErrnoStatus(errno, "waitpid");
  }
  if (!WIFEXITED(status)) {
    return absl::InternalError("the process that uses the mount for us was killed");
  }
  return WEXITSTATUS(status);
}

void InstallKickHandler() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  SALIUS_CHECK(::sigaction(kKickSignal, &action, nullptr) == 0);
}

}  // namespace

uint32_t WantedCapabilities(uint32_t offered, bool external) {
  // Everything else is off, above all WRITEBACK_CACHE and the first HANDLE_KILLPRIV.
  // - ATOMIC_O_TRUNC: with it a program that is being executed is truncated before the check for
  //   ETXTBSY.
  // - ASYNC_DIO: after an asynchronous direct write of a cached file the kernel keeps old pages
  //   that were read meanwhile, and a store through a map would write them back over acknowledged
  //   data.
  // - READDIRPLUS_AUTO: with it only the first part of a long listing has attributes, because
  //   programs list a whole directory before they look at its files. Each file behind that part
  //   then costs a LOOKUP, many times the price of an entry with attributes.
  uint32_t wanted = FUSE_CAP_ASYNC_READ | FUSE_CAP_DONT_MASK | FUSE_CAP_PARALLEL_DIROPS |
                    FUSE_CAP_POSIX_ACL | FUSE_CAP_EXPLICIT_INVAL_DATA | FUSE_CAP_IOCTL_DIR;
  // With commit=external the kernel's cache must answer no process: a link's target is read each
  // time, and entries of a listing would be looked up again at once.
  if (!external) wanted |= FUSE_CAP_READDIRPLUS | FUSE_CAP_CACHE_SYMLINKS;
  return offered & wanted;
}

uint64_t ExtraInitFlags(uint64_t offered) {
  if ((offered & FUSE_INIT_EXT) == 0) return 0;
  return offered & (kInitDirectIoAllowMmap | kInitNoExportSupport | kInitAllowIdmap |
                    FUSE_HANDLE_KILLPRIV_V2 | FUSE_SETXATTR_EXT);
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Mount(Front& front,
                                                              ConnectionOptions options) {
  absl::StatusOr<UniqueFd> fd = OpenAt(AT_FDCWD, "/dev/fuse", O_RDWR);
  if (!fd.ok()) return fd.status();

  char program[] = "salius-mount";
  char* argv[] = {program, nullptr};
  fuse_args args = FUSE_ARGS_INIT(1, argv);
  const fuse_lowlevel_ops ops = ConnectionOps();
  fuse_session* session = fuse_session_new(&args, &ops, sizeof(ops), &front);
  fuse_opt_free_args(&args);
  if (session == nullptr) return absl::InternalError("libfuse refuses to make a session");
  const fuse_custom_io io{.writev = DeviceWritev,
                          .read = DeviceRead,
                          .splice_receive = nullptr,
                          .splice_send = nullptr};
  if (fuse_session_custom_io(session, &io, fd->get()) != 0) {
    fuse_session_destroy(session);
    return absl::InternalError("libfuse refuses our descriptor");
  }

  const std::string data =
      absl::StrFormat("fd=%d,rootmode=%o,user_id=0,group_id=0,default_permissions,allow_other",
                      fd->get(), unsigned{S_IFDIR});
  if (::mount(options.source.c_str(), options.mountpoint.c_str(), kMountType, options.mount_flags,
              data.c_str()) != 0) {
    const int err = errno;
    static_cast<void>(fd->Release());  // destroy closes it
    fuse_session_destroy(session);
    return ErrnoStatus(err, "mount " + options.mountpoint);
  }
  return std::unique_ptr<Connection>(
      new Connection(front, std::move(options), *std::move(fd), session));
}

Connection::Connection(Front& front, ConnectionOptions options, UniqueFd fd, fuse_session* session)
    : front_(front),
      options_(std::move(options)),
      fd_(fd.Release()),
      session_(session),
      spinner_(options_.spin_ns, SystemClock()) {
  front_.SetSession(session_);
  if (absl::StatusOr<MountEntry> made = MountAt(options_.mountpoint); made.ok()) {
    device_ = std::move(made->device);
    const absl::Status lifted = LiftWriteBackLimit(kBdiDirectory, device_);
    if (!lifted.ok()) {
      SLOG_WARN("stores through shared maps stay slow: the kernel's limit of dirty pages: {}",
                lifted.ToString());
    }
  }
}

Connection::~Connection() {
  SALIUS_CHECK(workers_.empty(), "workers still run");
  if (mounted_) Detach();
  fuse_session_destroy(session_);
}

bool MayWait(uint32_t opcode) {
  switch (opcode) {
    case FUSE_LOOKUP:
    case FUSE_GETATTR:
    case kFuseStatx:
    case FUSE_READLINK:
    case FUSE_OPEN:
    case FUSE_READ:
    case FUSE_RELEASE:
    case FUSE_FLUSH:
    case FUSE_STATFS:
    case FUSE_GETXATTR:
    case FUSE_LISTXATTR:
    case FUSE_OPENDIR:
    case FUSE_READDIR:
    case FUSE_READDIRPLUS:
    case FUSE_RELEASEDIR:
    case FUSE_LSEEK:
    case FUSE_INTERRUPT:
    case FUSE_INIT:
    case FUSE_DESTROY:
      return false;
    default:
      return true;
  }
}

void Connection::Start(std::function<void()> on_end) {
  InstallKickHandler();
  workers_.Start(
      options_.threads, [this](Workers::Worker& worker) { Work(worker); }, std::move(on_end));
}

void Connection::Work(Workers::Worker& worker) {
  static_cast<void>(LeaveRestartableSequences());
  fuse_buf buffer{};
  worker.Reads();
  while (!stop_.load(std::memory_order_acquire)) {
    if (!front_.volume().stream().ManyWait()) {
      spinner_.Spin([this] {
        pollfd device{fd_, POLLIN, 0};
        return ::poll(&device, 1, 0) > 0;
      });
    }
    const int bytes = fuse_session_receive_buf(session_, &buffer);
    if (bytes == -EINTR || bytes == -EAGAIN) continue;
    if (bytes <= 0) break;  // ENODEV: unmounted, or the connection was aborted
    worker.Works();
    if (!Handle(buffer, worker)) break;
    for (std::string parked; workers_.TakeParked(worker, &parked);) {
      fuse_buf message{};
      message.mem = parked.data();
      message.size = parked.size();
      static_cast<void>(Handle(message, worker));
    }
    worker.Reads();
    if (workers_.MayLeave(worker)) break;
  }
  std::free(buffer.mem);
}

bool Connection::Handle(const fuse_buf& message, Workers::Worker& worker) {
  const auto* const bytes = static_cast<const uint8_t*>(message.mem);
  const std::optional<RawRequest> request =
      RawRequest::Parse(fd_, {bytes, message.size}, front_.filter());
  if (!request.has_value()) {
    SLOG_ERROR("the kernel sent a message of {} bytes that is no request", message.size);
    return false;
  }
  if (MayWait(request->opcode()) && workers_.MustPark(worker)) {
    workers_.Park(std::string(static_cast<const char*>(message.mem), message.size));
    return true;
  }
  KernelOrder::Begin(request->header().nodeid);
  if (front_.external() != nullptr) front_.external()->held.Begin(*request);
  if (front_.HandleRaw(*request)) return true;
  if (request->opcode() == FUSE_INIT) {
    t_init_unique = request->header().unique;
    t_init_extra = ExtraInitFlags(OfferedFlags(*request));
    front_.SetNegotiated(t_init_extra);
  }
  fuse_session_process_buf(session_, &message);
  t_init_unique = 0;
  return true;
}

absl::Status Connection::Probe() const {
  constexpr int kShown = 255;  // no errno is as large
  SALIUS_ASSIGN_OR_RETURN(const int code, RunApart(options_.mountpoint, [](int root) {
                            struct stat st;
                            if (::fstatat(root, ".salius", &st, AT_SYMLINK_NOFOLLOW) == 0) {
                              return kShown;
                            }
                            return errno == ENOENT ? 0 : errno;
                          }));
  if (code == kShown) return absl::InternalError("the mount shows .salius");
  return code == 0 ? absl::OkStatus() : ErrnoStatus(code, options_.mountpoint);
}

void Connection::SyncPages(const std::string& mountpoint) const {
  const absl::StatusOr<int> code =
      RunApart(mountpoint, [](int root) { return ::syncfs(root) == 0 ? 0 : errno; });
  absl::Status status = code.status();
  if (code.ok() && *code != 0) status = ErrnoStatus(*code, "syncfs " + mountpoint);
  if (!status.ok()) SLOG_WARN("{}", status.ToString());
}

// Waits, because until Linux 6.16 syncfs(2) of a FUSE file system returns when its pages are
// queued.
void Connection::AwaitNoRequests() const {
  const Deadline bound = Deadline::After(SystemClock(), kWriteBackBound);
  pollfd device{fd_, POLLIN, 0};
  while (::poll(&device, 1, 0) > 0 && !bound.Expired(SystemClock())) {
    std::this_thread::sleep_for(kKickInterval);
  }
}

void Connection::Unmount() {
  const bool ours = IsOurs();
  const absl::Status unmounted =
      ours ? UnmountPath(options_.mountpoint, 0)
           : absl::NotFoundError(options_.mountpoint + " is not our mount any more");
  if (unmounted.ok()) {
    mounted_ = false;
    if (KickFor(kLeaveBound)) return;
    SLOG_WARN("{} is still mounted elsewhere, or a file is open there: that fails from here on",
              options_.source);
  } else {
    SLOG_WARN("{}: open files will fail from here on", unmounted.ToString());
    // Shared maps may hold dirty pages, and the workers still run to take them.
    if (ours) SyncPages(options_.mountpoint);
  }
  const std::vector<std::string> others = OtherMountsOf(device_, options_.mountpoint);
  for (const std::string& other : others) {
    if (IsOursAt(other)) SyncPages(other);
  }
  AwaitNoRequests();
  Detach();
  for (const std::string& other : others) {
    if (!IsOursAt(other)) continue;  // gone with ours, or below another file system's mount
    const absl::Status detached = UnmountPath(other, MNT_DETACH);
    if (!detached.ok()) SLOG_WARN("{}", detached.ToString());
  }
  stop_.store(true, std::memory_order_release);
  KickUntilLeft();
}

// No other file system gets the device number while our connection lives.
bool Connection::IsOursAt(const std::string& mountpoint) const {
  const absl::StatusOr<MountEntry> top = MountAt(mountpoint);
  return top.ok() && top->type == kMountType && top->device == device_;
}

void Connection::Detach() {
  mounted_ = false;
  if (!IsOurs()) return;
  const absl::Status status = UnmountPath(options_.mountpoint, MNT_DETACH);
  if (!status.ok()) SLOG_WARN("{}", status.ToString());
}

void Connection::KickUntilLeft() {
  while (!KickFor(kLeaveBound)) {
  }
}

bool Connection::KickFor(std::chrono::milliseconds bound) {
  const Deadline end = Deadline::After(SystemClock(), bound);
  // A signal that comes just before read(2) is lost, hence the repetition.
  while (!workers_.WaitFor(kKickInterval)) {
    if (end.Expired(SystemClock())) return false;
    workers_.Kick(kKickSignal);
  }
  return true;
}

void Connection::Join() {
  workers_.Join();
  front_.AwaitAnswers();
  mounted_ = false;
}

bool Connection::InMountTable() const {
  const absl::StatusOr<std::vector<MountEntry>> table = ReadMountTable();
  return table.ok() && std::any_of(table->begin(), table->end(), [this](const MountEntry& entry) {
           return entry.device == device_ && entry.type == kMountType &&
                  entry.source == options_.source;
         });
}

bool Connection::CutOff() {
  const Deadline bound = Deadline::After(SystemClock(), kForcedBound);
  while (InMountTable()) {
    if (bound.Expired(SystemClock())) return true;
    std::this_thread::sleep_for(kKickInterval);
  }
  return false;
}

}  // namespace salius

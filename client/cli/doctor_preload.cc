#include "client/cli/doctor_preload.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/file.h"

namespace salius::cli {
namespace {

constexpr char kCapability[] = "security.capability";

// Names without the suffixes of their variants: a leading "__", "64", "_2" and "_chk".
constexpr std::array<std::string_view, 14> kLogged = {
    "write", "writev",    "pwrite", "pwritev", "pwritev2",        "truncate", "ftruncate",
    "fsync", "fdatasync", "sync",   "syncfs",  "sync_file_range", "msync",    "open"};
// Their data goes past the log: the next sync of the file is a real fsync.
constexpr std::array<std::string_view, 17> kUncovered = {
    "mmap",      "fallocate", "posix_fallocate", "copy_file_range", "sendfile", "splice",
    "fopen",     "freopen",   "fdopen",          "fwrite",          "fputs",    "fprintf",
    "aio_write", "aio_fsync", "lio_listio",      "fflush",          "mremap"};
// Refused with ENOSYS: the program must do without.
constexpr std::array<std::string_view, 6> kRefused = {
    "io_uring_setup", "io_uring_queue_init", "io_uring_queue_init_params",
    "io_setup",       "io_submit",           "io_queue_init"};

std::string_view WithoutVariant(std::string_view name) {
  absl::string_view plain(name.data(), name.size());
  absl::ConsumePrefix(&plain, "__");
  absl::ConsumeSuffix(&plain, "_chk");
  absl::ConsumeSuffix(&plain, "_2");
  absl::ConsumeSuffix(&plain, "64");
  return {plain.data(), plain.size()};
}

template <size_t N>
std::string ImportsAmong(const ElfImports& imports, const std::array<std::string_view, N>& names) {
  std::vector<std::string> found;
  for (const std::string& function : imports.functions) {
    const std::string_view plain = WithoutVariant(function);
    if (std::find(names.begin(), names.end(), plain) != names.end()) found.push_back(function);
  }
  return absl::StrJoin(found, ", ");
}

bool UsesAsyncLibrary(const ElfImports& imports) {
  return std::any_of(
      imports.libraries.begin(), imports.libraries.end(), [](const std::string& name) {
        return absl::StartsWith(name, "liburing.so") || absl::StartsWith(name, "libaio.so");
      });
}

void JudgeCalls(const ElfImports& imports, Findings& findings) {
  const std::string logged = ImportsAmong(imports, kLogged);
  if (logged.empty()) {
    findings.Warn("covered calls", "none in the program itself",
                  "its libraries may make them: give doctor the library");
  } else {
    findings.Ok("covered calls", logged);
  }
  if (const std::string calls = ImportsAmong(imports, kUncovered); !calls.empty()) {
    findings.Warn("uncovered calls", calls,
                  "of a file that they write, the next sync is a real fsync, which is slow and "
                  "safe");
  }
  const std::string refused = ImportsAmong(imports, kRefused);
  if (!refused.empty() || UsesAsyncLibrary(imports)) {
    findings.Warn("asynchronous I/O", refused.empty() ? "by liburing or libaio" : refused,
                  "it is refused with ENOSYS: the program must fall back; where it has an option "
                  "for that, set it; otherwise use a mount");
  }
  const auto begin = imports.functions.begin();
  if (std::find(begin, imports.functions.end(), "syscall") != imports.functions.end()) {
    findings.Warn("syscall(2)", "imported",
                  "writes made by it are seen by salius-run as far as it knows their numbers");
  }
}

}  // namespace

absl::StatusOr<BinaryFacts> GatherBinaryFacts(const std::string& path) {
  BinaryFacts facts;
  facts.path = path;
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd fd, OpenAt(AT_FDCWD, path, O_RDONLY));
  struct stat attr {};
  if (fstat(fd.get(), &attr) != 0) return ErrnoStatus(errno, path);
  if (!S_ISREG(attr.st_mode)) return absl::InvalidArgumentError(path + " is not a file");
  facts.set_id =
      (attr.st_mode & (S_ISUID | S_ISGID)) != 0 || fgetxattr(fd.get(), kCapability, nullptr, 0) > 0;
  SALIUS_ASSIGN_OR_RETURN(const std::string content, ReadWholeFile(path));
  facts.script = absl::StartsWith(content, "#!");
  if (facts.script) return facts;
  absl::StatusOr<ElfImports> imports = ReadElfImports(AsBytes(content));
  if (!imports.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", imports.status().message()));
  }
  facts.imports = *std::move(imports);
  return facts;
}

void JudgeBinary(const BinaryFacts& facts, Findings& findings) {
  constexpr char kUseMount[] = "salius-run refuses it: use a mount (salius-mount)";
  if (facts.script) {
    findings.Warn("program", "a script", "give doctor its interpreter, and what it starts");
    return;
  }
  if (facts.set_id) {
    findings.Fail("set-id",
                  "set-user-id, set-group-id or capabilities: the loader ignores "
                  "preloaded libraries",
                  kUseMount);
  } else {
    findings.Ok("set-id", "no");
  }
  if (!facts.imports.dynamic) {
    findings.Fail("linking", facts.imports.go ? "static, by Go" : "static", kUseMount);
    return;
  }
  findings.Ok("linking", "dynamic");
  if (facts.imports.go) {
    findings.Fail("Go", "its runtime calls the kernel itself, past every library",
                  "use a mount (salius-mount): its writes would be seen by no one");
    return;
  }
  JudgeCalls(facts.imports, findings);
}

}  // namespace salius::cli

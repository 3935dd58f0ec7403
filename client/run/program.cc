#include "client/run/program.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/preload/program.h"
#include "common/file.h"

namespace salius::run {
namespace {

constexpr char kLibrary[] = "libsalius_preload.so";

bool IsFile(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode);
}

absl::StatusOr<std::string> Judged(const std::string& file, Programs programs) {
  const preload::Verdict verdict = preload::JudgeProgram(AT_FDCWD, file.c_str());
  if (verdict == preload::Verdict::kRuns) return file;
  if (programs == Programs::kGated) {
    // The filter refuses calls of other machines; another C library ends at symbols it has not.
    if (verdict != preload::Verdict::kOther) return file;
    return absl::PermissionDeniedError(
        absl::StrCat(file, ": it is for another C library or machine"));
  }
  return absl::PermissionDeniedError(absl::StrCat(file, ": ", preload::VerdictText(verdict)));
}

}  // namespace

absl::StatusOr<std::string> FindProgram(const std::string& name, const std::string& path,
                                        Programs programs) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> places;
  if (name.find('/') != std::string::npos) {
    places.push_back(name);
  } else {
    for (const auto dir : absl::StrSplit(path, ':')) {
      places.push_back(dir.empty() ? name : absl::StrCat(dir, "/", name));
    }
  }
  if (name.find('/') != std::string::npos && fs::is_directory(name, error)) {
    return absl::PermissionDeniedError(absl::StrCat(name, ": is a directory"));
  }
  std::string denied;
  for (const std::string& place : places) {
    if (!IsFile(place)) continue;
    if (::access(place.c_str(), X_OK) == 0) return Judged(place, programs);
    if (denied.empty()) denied = place;
  }
  if (!denied.empty()) {
    return absl::PermissionDeniedError(absl::StrCat(denied, ": no permission to execute it"));
  }
  return absl::NotFoundError(absl::StrCat(name, ": there is no such program"));
}

absl::StatusOr<std::string> FindLibrary() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return ErrnoStatus(error.value(), "/proc/self/exe");
  std::vector<std::string> places;
  for (const char* const beside : {"", "../lib", "../preload"}) {
    places.push_back((self.parent_path() / beside / kLibrary).lexically_normal().string());
    if (::access(places.back().c_str(), R_OK) == 0) return places.back();
  }
  return absl::NotFoundError(
      absl::StrCat("the library is missing: ", absl::StrJoin(places, ", "), "; install Salius again"));
}

}  // namespace salius::run

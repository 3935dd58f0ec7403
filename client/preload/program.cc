#include "client/preload/program.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstring>

#include "client/preload/raw_call.h"

namespace salius::preload {
namespace {

constexpr int kMostInterpreters = 5;  // as the kernel's limit of nested scripts
constexpr char kLoader[] = "/lib64/ld-linux-x86-64.so.2";
constexpr char kLoaderName[] = "ld-linux-x86-64.so.2";

bool ReadAt(int fd, void* data, size_t size, uint64_t offset) {
  return Raw(SYS_pread64, fd, data, size, offset) == static_cast<long>(size);
}

// Returns whether ld.so(8) will be in its secure mode: the effective ids will not be the real ones,
// or the file gives capabilities.
bool ChangesIdentity(int fd, const struct stat& status) {
  const uid_t user = static_cast<uid_t>(Raw(SYS_getuid));
  const gid_t group = static_cast<gid_t>(Raw(SYS_getgid));
  uid_t effective_user = static_cast<uid_t>(Raw(SYS_geteuid));
  gid_t effective_group = static_cast<gid_t>(Raw(SYS_getegid));
  if ((status.st_mode & S_ISUID) != 0) effective_user = status.st_uid;
  if ((status.st_mode & S_ISGID) != 0 && (status.st_mode & S_IXGRP) != 0) {
    effective_group = status.st_gid;
  }
  if (effective_user != user || effective_group != group) return true;
  return user != 0 && Raw(SYS_fgetxattr, fd, "security.capability", nullptr, 0) > 0;
}

bool IsLoader(const struct stat& status) {
  struct stat loader;
  return Raw(SYS_stat, kLoader, &loader) == 0 && loader.st_dev == status.st_dev &&
         loader.st_ino == status.st_ino;
}

// Returns whether the interpreter of `header` is glibc's dynamic linker.
bool NamesLoader(int fd, const Elf64_Phdr& header) {
  char path[PATH_MAX];
  if (header.p_filesz < sizeof(kLoaderName) || header.p_filesz > sizeof(path)) return false;
  if (!ReadAt(fd, path, header.p_filesz, header.p_offset)) return false;
  path[header.p_filesz - 1] = '\0';
  const char* name = strrchr(path, '/');
  return strcmp(name == nullptr ? path : name + 1, kLoaderName) == 0;
}

// Returns whether the notes of `segment` have one of the Go linker.
bool HasGoNote(int fd, const Elf64_Phdr& segment) {
  constexpr int kMostNotes = 16;
  constexpr char kOwner[4] = {'G', 'o', 0, 0};
  uint64_t at = 0;
  for (int i = 0; i < kMostNotes && at + sizeof(Elf64_Nhdr) + sizeof(kOwner) <= segment.p_filesz;
       ++i) {
    struct {
      Elf64_Nhdr header;
      char owner[4];
    } note;
    if (!ReadAt(fd, &note, sizeof(note), segment.p_offset + at)) return false;
    if (note.header.n_namesz == sizeof(kOwner) && memcmp(note.owner, kOwner, sizeof(kOwner)) == 0) {
      return true;
    }
    const auto padded = [](uint64_t size) { return (size + 3) & ~uint64_t{3}; };
    at += sizeof(note.header) + padded(note.header.n_namesz) + padded(note.header.n_descsz);
  }
  return false;
}

Verdict JudgeElf(int fd, const struct stat& status) {
  Elf64_Ehdr header;
  if (!ReadAt(fd, &header, sizeof(header), 0)) return Verdict::kRuns;
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64) {
    return Verdict::kOther;
  }
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return Verdict::kRuns;
  bool go = false;
  bool dynamic = false;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!ReadAt(fd, &segment, sizeof(segment), header.e_phoff + i * sizeof(segment))) {
      return Verdict::kRuns;
    }
    if (segment.p_type == PT_NOTE) go |= HasGoNote(fd, segment);
    if (segment.p_type != PT_INTERP) continue;
    if (!NamesLoader(fd, segment)) return Verdict::kOther;
    dynamic = true;
  }
  if (!dynamic && !IsLoader(status)) return Verdict::kStatic;
  return go ? Verdict::kGo : Verdict::kRuns;
}

// Stores at `path` the interpreter of the script whose beginning is `line`. Returns false when it
// names none.
bool Interpreter(char* line, char* path) {
  line += strspn(line, " \t");
  const size_t length = strcspn(line, " \t\n");
  if (length == 0 || length >= PATH_MAX) return false;
  memcpy(path, line, length);
  path[length] = '\0';
  return true;
}

}  // namespace

Verdict JudgeProgram(int directory, const char* path) {
  char interpreter[PATH_MAX];
  for (int i = 0; i < kMostInterpreters; ++i) {
    const long fd = Raw(SYS_openat, directory, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
      const bool hidden = fd == -EACCES && Raw(SYS_faccessat, directory, path, X_OK) == 0;
      return hidden ? Verdict::kUnreadable : Verdict::kRuns;
    }
    char begin[256] = {};
    struct stat status;
    Verdict verdict = Verdict::kRuns;
    bool script = false;
    if (Raw(SYS_fstat, fd, &status) == 0 && S_ISREG(status.st_mode) &&
        Raw(SYS_pread64, fd, begin, sizeof(begin) - 1, 0) > 4) {
      if (memcmp(begin, ELFMAG, SELFMAG) == 0) {
        verdict = ChangesIdentity(static_cast<int>(fd), status)
                      ? Verdict::kSetId
                      : JudgeElf(static_cast<int>(fd), status);
      } else {
        script = memcmp(begin, "#!", 2) == 0 && Interpreter(begin + 2, interpreter);
      }
    }
    Raw(SYS_close, fd);
    if (!script) return verdict;
    directory = AT_FDCWD;
    path = interpreter;
  }
  return Verdict::kRuns;
}

const char* VerdictText(Verdict verdict) {
  switch (verdict) {
    case Verdict::kRuns:
      return "";
    case Verdict::kStatic:
      return "it is linked statically, so that its writes cannot be replicated";
    case Verdict::kSetId:
      return "it changes its identity (set-id or capabilities), so that its writes cannot be "
             "replicated";
    case Verdict::kUnreadable:
      return "it cannot be read, so that nothing says whether its writes can be replicated";
    case Verdict::kOther:
      return "it is for another C library or machine, so that its writes cannot be replicated";
    case Verdict::kGo:
      return "it is a Go program, which calls the kernel itself, so that its writes cannot be "
             "replicated";
  }
  return "";
}

}  // namespace salius::preload

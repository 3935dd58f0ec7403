#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "tests/unit/preload/subject.h"

static void sync_family(void) {
  const int fd = subject_file("f");
  REQUIRE(fsync(fd) == 0);
  REQUIRE(fdatasync(fd) == 0);
  REQUIRE(syncfs(fd) == 0);
  sync();
  REQUIRE(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) == 0);
  REQUIRE(syscall(SYS_fsync, fd) == 0);
  REQUIRE(syscall(SYS_fdatasync, fd) == 0);
  REQUIRE(syscall(SYS_syncfs, fd) == 0);
  REQUIRE(syscall(SYS_sync) == 0);
}

static void sync_errors(void) {
  FAILS(fsync(-1), EBADF);
  FAILS(fsync(99), EBADF);
  FAILS(fdatasync(99), EBADF);
  FAILS(syncfs(99), EBADF);
  const int directory = open(".", O_RDONLY | O_DIRECTORY);
  REQUIRE(fsync(directory) == 0);
  const int fd = subject_file("f");
  errno = 0;
  REQUIRE(fsync(fd) == 0 && errno == 0);
}

/* The implementation answers EIO. */
static void sync_fails(void) {
  const int fd = subject_file("f");
  FAILS(fsync(fd), EIO);
  FAILS(fdatasync(fd), EIO);
  FAILS(syncfs(fd), EIO);
  const int synchronous = open("g", O_WRONLY | O_CREAT | O_SYNC, 0644);
  FAILS(write(synchronous, "x", 1), EIO);
  REQUIRE(write(fd, "x", 1) == 1);
}

const struct subject_case sync_cases[] = {{"sync_family", sync_family},
                                          {"sync_errors", sync_errors},
                                          {"sync_fails", sync_fails},
                                          {NULL, NULL}};

static void* map(int fd, int protection, int flags) {
  void* address = mmap(NULL, 4096, protection, flags, fd, 0);
  REQUIRE(address != MAP_FAILED);
  return address;
}

static int sized(const char* name, int flags) {
  const int fd = subject_file(name);
  REQUIRE(ftruncate(fd, 8192) == 0);
  REQUIRE(close(fd) == 0);
  const int again = open(name, flags);
  REQUIRE(again >= 0);
  return again;
}

static void map_writable(void) {
  const int fd = sized("f", O_RDWR);
  char* address = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
  address[0] = 'x';
  REQUIRE(msync(address, 4096, MS_SYNC) == 0);
  REQUIRE(msync(address, 4096, MS_ASYNC) == 0);
  REQUIRE(close(fd) == 0);
  REQUIRE(msync(address, 4096, MS_SYNC) == 0);
  REQUIRE(munmap(address, 4096) == 0);
  FAILS(msync(address, 4096, MS_SYNC), ENOMEM);
}

static void map_harmless(void) {
  const int fd = sized("f", O_RDWR);
  char* address = map(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  address[0] = 'x';
  REQUIRE(msync(address, 4096, MS_SYNC) == 0);
  map(sized("g", O_RDONLY), PROT_READ, MAP_SHARED);
  map(-1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
  errno = 0;
  REQUIRE(mmap(NULL, 4096, PROT_READ, MAP_SHARED, 99, 0) == MAP_FAILED && errno == EBADF);
}

/* The file system has no MAP_SYNC: the map fails, and the file stays as it was. */
static void map_fails(void) {
  const int fd = sized("f", O_RDWR);
  errno = 0;
  REQUIRE(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0) ==
          MAP_FAILED);
  REQUIRE(errno == EOPNOTSUPP);
  REQUIRE(write(fd, "logged", 6) == 6);
}

static void map_made_writable(void) {
  const int fd = sized("f", O_RDWR);
  char* address = map(fd, PROT_READ, MAP_SHARED);
  REQUIRE(write(fd, "before", 6) == 6);
  REQUIRE(mprotect(address, 4096, PROT_READ | PROT_WRITE) == 0);
  address[0] = 'x';
}

static void map_moved(void) {
  const int fd = sized("f", O_RDWR);
  char* address = mmap64(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
  char* moved = mremap(address, 4096, 8192, MREMAP_MAYMOVE);
  REQUIRE(moved != MAP_FAILED);
  REQUIRE(mprotect(moved + 4096, 4096, PROT_READ | PROT_WRITE) == 0);
  moved[4096] = 'x';
  REQUIRE(munmap(moved, 8192) == 0);
  void* raw = (void*)syscall(SYS_mmap, NULL, 4096L, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L);
  REQUIRE(raw != MAP_FAILED);
}

static void map_many(void) {
  const int fd = sized("f", O_RDWR);
  for (int i = 0; i < 300; ++i) map(fd, PROT_READ, MAP_SHARED);
}

static void map_moved_many(void) {
  const int fd = sized("f", O_RDWR);
  char* address = NULL;
  for (int i = 0; i < 256; ++i) address = map(fd, PROT_READ, MAP_SHARED);
  REQUIRE(mremap(address, 4096, 8192, MREMAP_MAYMOVE) != MAP_FAILED);
}

static void map_pkey(void) {
  const int fd = sized("f", O_RDWR);
  char* address = map(fd, PROT_READ, MAP_SHARED);
  REQUIRE(pkey_mprotect(address, 4096, PROT_READ | PROT_WRITE, -1) == 0);
  address[0] = 'x';
  if (syscall(SYS_pkey_mprotect, address, 4096L, PROT_READ | PROT_WRITE, -1L) != 0) {
    REQUIRE(errno == ENOSYS);
  }
}

/* Stands in for another thread: unmaps in the place of the kernel, and gets a map at the address. */
enum { REPLACED_SIZE = 7 * 4096 };
static char* replaced;
static int replacing;

static void replace(int signal, siginfo_t* info, void* context) {
  (void)signal;
  (void)info;
  syscall(SYS_mmap, replaced, (long)REPLACED_SIZE, PROT_NONE,
          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1L, 0L);
  REQUIRE(mmap(replaced, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, replacing, 0) == replaced);
  ((ucontext_t*)context)->uc_mcontext.gregs[REG_RAX] = 0;
}

/* Lets a handler make each munmap(2) of REPLACED_SIZE bytes, or fails it with `error`. */
static void catch_munmap(uint32_t answer) {
  const struct sigaction action = {.sa_sigaction = replace, .sa_flags = SA_SIGINFO};
  REQUIRE(sigaction(SIGSYS, &action, NULL) == 0);
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, REPLACED_SIZE, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, answer),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void map_is_replaced_while_it_goes(void) {
  replaced = mmap(NULL, REPLACED_SIZE, PROT_READ, MAP_SHARED, sized("f", O_RDWR), 0);
  REQUIRE(replaced != MAP_FAILED);
  replacing = sized("g", O_RDWR);
  catch_munmap(SECCOMP_RET_TRAP);
  REQUIRE(munmap(replaced, REPLACED_SIZE) == 0);
  REQUIRE(mprotect(replaced, 4096, PROT_READ | PROT_WRITE) == 0);
  replaced[0] = 'x';
}

static void map_does_not_go(void) {
  char* address = mmap(NULL, REPLACED_SIZE, PROT_READ, MAP_SHARED, sized("f", O_RDWR), 0);
  REQUIRE(address != MAP_FAILED);
  catch_munmap(SECCOMP_RET_ERRNO | ENOMEM);
  FAILS(munmap(address, REPLACED_SIZE), ENOMEM);
  REQUIRE(mprotect(address, 4096, PROT_READ | PROT_WRITE) == 0);
  address[0] = 'x';
}

const struct subject_case map_cases[] = {{"map_writable", map_writable},
                                         {"map_harmless", map_harmless},
                                         {"map_fails", map_fails},
                                         {"map_made_writable", map_made_writable},
                                         {"map_moved", map_moved},
                                         {"map_many", map_many},
                                         {"map_moved_many", map_moved_many},
                                         {"map_pkey", map_pkey},
                                         {"map_is_replaced_while_it_goes",
                                          map_is_replaced_while_it_goes},
                                         {"map_does_not_go", map_does_not_go},
                                         {NULL, NULL}};

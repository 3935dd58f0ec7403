#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
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

const struct subject_case map_cases[] = {{"map_writable", map_writable},
                                         {"map_harmless", map_harmless},
                                         {"map_fails", map_fails},
                                         {"map_made_writable", map_made_writable},
                                         {"map_moved", map_moved},
                                         {"map_many", map_many},
                                         {NULL, NULL}};

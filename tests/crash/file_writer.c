// Numbered writes to files of a directory by plain system calls, one for each line of input, each
// printed when it is durable by contract.
//
// usage: file_writer DIR FIRST HOW ID FIRST_SLOT
//
// | HOW | file | calls |
// |---|---|---|
// | osync | slots | pwrite of a slot, O_SYNC |
// | fsync | slots | pwrite, fsync |
// | position | slots | lseek, write, fdatasync |
// | append | log | write with O_APPEND, fsync |
// | create | new-ID-N | open, write, fsync, close |
//
// Number N fills its SIZE bytes with its own text, "ID N". It goes to slot FIRST_SLOT + N % SLOTS.
// Any error ends the program with exit status 3 and the errno's name on stderr.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kSize = 512, kUnit = 32, kSlots = 32 };

static int Done(ssize_t result, ssize_t wanted) {
  if (result == wanted) return 0;
  dprintf(STDERR_FILENO, "failed: %s\n", result < 0 ? strerrorname_np(errno) : "short");
  exit(3);
}

static void Fill(char* data, const char* id, long number) {
  char unit[kUnit + 1];
  snprintf(unit, sizeof unit, "%s %*ld\n", id, (int)(kUnit - 2 - strlen(id)), number);
  for (int at = 0; at < kSize; at += kUnit) memcpy(data + at, unit, kUnit);
}

int main(int argc, char** argv) {
  if (argc != 6 || chdir(argv[1]) != 0) return 2;
  const char* const how = argv[3];
  const int create = strcmp(how, "create") == 0, append = strcmp(how, "append") == 0;
  const int osync = strcmp(how, "osync") == 0, position = strcmp(how, "position") == 0;
  int fd = -1;
  if (!create) {
    const int flags = O_WRONLY | O_CREAT | (append ? O_APPEND : 0) | (osync ? O_SYNC : 0);
    fd = open(append ? "log" : "slots", flags, 0600);
    Done(fd < 0 ? -1 : 0, 0);
  }
  char line[16], data[kSize], name[64];
  for (long number = atol(argv[2]); read(STDIN_FILENO, line, 1) == 1; ++number) {
    Fill(data, argv[4], number);
    const off_t offset = (atol(argv[5]) + number % kSlots) * kSize;
    if (create) {
      snprintf(name, sizeof name, "new-%s-%ld", argv[4], number);
      fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
      Done(fd < 0 ? -1 : 0, 0);
    }
    if (position) Done(lseek(fd, offset, SEEK_SET), offset);
    Done(position || append || create ? write(fd, data, kSize) : pwrite(fd, data, kSize, offset), kSize);
    if (!osync) Done(position ? fdatasync(fd) : fsync(fd), 0);
    if (create) Done(close(fd), 0);
    dprintf(STDOUT_FILENO, "%ld\n", number);
  }
  return 0;
}

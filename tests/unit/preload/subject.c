#define _GNU_SOURCE
#include "tests/unit/preload/subject.h"

#include <fcntl.h>
#include <unistd.h>

const char* subject_path;

int subject_file(const char* name) {
  const int fd = open(name, O_RDWR | O_CREAT, 0644);
  REQUIRE(fd >= 0);
  return fd;
}

int main(int count, char** arguments) {
  const struct subject_case* all[] = {open_cases, write_cases,   sync_cases,
                                      map_cases,  close_cases,   name_cases,
                                      aio_cases,  process_cases, thread_cases,
                                      error_cases, output_cases};
  subject_path = arguments[0];
  for (size_t i = 0; count > 1 && i < sizeof(all) / sizeof(all[0]); ++i) {
    for (const struct subject_case* at = all[i]; at->name != NULL; ++at) {
      if (strcmp(at->name, arguments[1]) != 0) continue;
      at->run();
      /* Not by exit(3): the streams of a case are its own business. */
      _exit(0);
    }
  }
  fprintf(stderr, "no such case\n");
  return 2;
}

/* The program under the preload library: plain C, each case calls the functions of one theme in its
   working directory, which is the volume, and checks what they return. */
#ifndef TESTS_UNIT_PRELOAD_SUBJECT_H_
#define TESTS_UNIT_PRELOAD_SUBJECT_H_

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct subject_case {
  const char* name;
  void (*run)(void);
};

/* Each file's cases, ending with a null name. */
extern const struct subject_case open_cases[];
extern const struct subject_case write_cases[];
extern const struct subject_case sync_cases[];
extern const struct subject_case map_cases[];
extern const struct subject_case close_cases[];
extern const struct subject_case error_cases[];
extern const struct subject_case name_cases[];
extern const struct subject_case output_cases[];
extern const struct subject_case aio_cases[];
extern const struct subject_case process_cases[];
extern const struct subject_case thread_cases[];

/* Ends the program with a message when `condition` does not hold. */
#define REQUIRE(condition)                                                              \
  do {                                                                                  \
    if (!(condition)) {                                                                 \
      fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
      _exit(1);                                                                         \
    }                                                                                   \
  } while (0)

/* Requires that `call` fails with `error`. */
#define FAILS(call, error)     \
  do {                         \
    errno = 0;                 \
    REQUIRE((call) == -1);     \
    REQUIRE(errno == (error)); \
  } while (0)

/* Opens NAME for reading and writing, and makes it. */
int subject_file(const char* name);
/* The program's path, and its environment as main got it. */
extern const char* subject_path;

#endif

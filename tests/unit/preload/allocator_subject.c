/* A program with an allocator of its own that writes to a file of the volume at each call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char arena[1 << 22];
static size_t used;
static int log_fd = -1;

void* malloc(size_t size) {
  if (log_fd < 0) log_fd = open("log", O_WRONLY | O_CREAT | O_APPEND | O_DSYNC, 0644);
  if (write(log_fd, "m", 1) != 1) _exit(3);
  void* page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(page, 4096);
  const size_t start = __atomic_fetch_add(&used, (size + 15) & ~(size_t)15, 5);
  return start + size > sizeof(arena) ? NULL : arena + start;
}
void free(void* pointer) { (void)pointer; }
void* calloc(size_t count, size_t size) { return malloc(count * size); }
void* realloc(void* old, size_t size) {
  void* made = malloc(size);
  if (old != NULL && made != NULL) memcpy(made, old, size);
  return made;
}

int main(void) {
  /* A failed look-up allocates the text of its error. */
  if (dlsym(RTLD_DEFAULT, "no_such_function") != NULL || dlerror() == NULL) return 1;
  for (int i = 0; i < 10; ++i) {
    if (malloc(10) == NULL) return 1;
  }
  return 0;
}

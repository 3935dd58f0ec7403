#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utmp.h>

#include "tests/unit/preload/subject.h"

extern char** environ;

/* Requires that the child ends well. */
static void ends_well(pid_t child) {
  int status = 0;
  REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void child_writes(int fd) {
  REQUIRE(write(fd, "child", 5) == 5);
  _exit(0);
}

static void fork_family(void) {
  const int fd = open("f", O_WRONLY | O_CREAT | O_DSYNC, 0644);
  pid_t child = fork();
  if (child == 0) child_writes(fd);
  ends_well(child);
  child = _Fork();
  if (child == 0) child_writes(fd);
  ends_well(child);
  child = syscall(SYS_fork);
  if (child == 0) child_writes(fd);
  ends_well(child);
  child = syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L);
  if (child == 0) child_writes(fd);
  ends_well(child);
  REQUIRE(write(fd, "parent", 6) == 6);
}

static int clone_main(void* argument) {
  REQUIRE(write(*(int*)argument, "clone", 5) == 5);
  return 0;
}

static void clone_calls(void) {
  int fd = subject_file("f");
  static char stack[65536] __attribute__((aligned(16)));
  ends_well(clone(clone_main, stack + sizeof(stack), SIGCHLD, &fd));
  ends_well(clone(clone_main, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, &fd));
  REQUIRE(write(fd, "parent", 6) == 6);
}

/* More than fork(2): the child takes no lock, and syncs fail. Its own child is a forked one. */
static int unknown_main(void* argument) {
  const int fd = *(int*)argument;
  REQUIRE(write(fd, "clone", 5) == 5);
  FAILS(fsync(fd), EIO);
  FAILS(close(500), EBADF); /* the library's own */
  const pid_t child = fork();
  if (child == 0) child_writes(fd);
  ends_well(child);
  return 0;
}

static void clone_calls_of_other_kinds(void) {
  int fd = subject_file("f");
  static char stack[65536] __attribute__((aligned(16)));
  void* const top = stack + sizeof(stack);
  ends_well(clone(unknown_main, top, CLONE_FS | SIGCHLD, &fd));
  const pid_t child = syscall(SYS_clone, (long)CLONE_FS | SIGCHLD, 0L, 0L, 0L, 0L);
  if (child == 0) _exit(unknown_main(&fd));
  ends_well(child);
  FAILS(clone(unknown_main, top, CLONE_FILES | SIGCHLD, &fd), EINVAL);
  FAILS(syscall(SYS_clone, (long)CLONE_FILES | SIGCHLD, 0L, 0L, 0L, 0L), EINVAL);
}

/* ---- A child that dies gives its robust locks back, however it was made. */
static pthread_mutex_t* shared_lock;

static int dies_with_the_lock(void* unused) {
  (void)unused;
  _exit(pthread_mutex_lock(shared_lock));
}

static void is_dead_ones(pid_t child) {
  ends_well(child);
  REQUIRE(pthread_mutex_trylock(shared_lock) == EOWNERDEAD);
  REQUIRE(pthread_mutex_consistent(shared_lock) == 0);
  REQUIRE(pthread_mutex_unlock(shared_lock) == 0);
}

static void forked_children_give_locks_back(void) {
  shared_lock = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared_lock != MAP_FAILED);
  pthread_mutexattr_t attributes;
  REQUIRE(pthread_mutexattr_init(&attributes) == 0);
  REQUIRE(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0);
  REQUIRE(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
  REQUIRE(pthread_mutex_init(shared_lock, &attributes) == 0);
  static char stack[65536] __attribute__((aligned(16)));
  is_dead_ones(clone(dies_with_the_lock, stack + sizeof(stack), SIGCHLD, NULL));
  pid_t child = syscall(SYS_fork);
  if (child == 0) dies_with_the_lock(NULL);
  is_dead_ones(child);
  child = syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
  if (child == 0) dies_with_the_lock(NULL);
  is_dead_ones(child);
  struct clone_args words = {.exit_signal = SIGCHLD};
  child = syscall(SYS_clone3, &words, sizeof(words));
  if (child == 0) dies_with_the_lock(NULL);
  is_dead_ones(child);
}

static void vfork_child(void) {
  const int fd = subject_file("f");
  const pid_t parent = getpid();
  const pid_t child = vfork();
  if (child == 0) {
    /* Its own descriptors: the parent's table must not change. */
    close(fd);
    dup2(1, fd);
    if (getppid() != parent) _exit(1);
    execl("/bin/true", "true", NULL);
    _exit(1);
  }
  ends_well(child);
  REQUIRE(write(fd, "parent", 6) == 6);
}

static void vfork_child_writes(void) {
  const int fd = subject_file("f");
  const pid_t child = vfork();
  if (child == 0) {
    if (write(fd, "child", 5) != 5) _exit(1);
    _exit(0);
  }
  ends_well(child);
}

/* The child's descriptors are its own: what the parent's table says of their numbers is wrong. */
static void vfork_child_writes_elsewhere(void) {
  const int fd = open("f", O_RDWR | O_CREAT | O_DSYNC, 0644);
  REQUIRE(fcntl(2, F_GETFD) >= 0); /* known, and not a file of the volume */
  const pid_t child = vfork();
  if (child == 0) {
    if (dup2(fd, 2) != 2 || dup2(fd, 9) != 9) _exit(1);
    if (ftruncate(2, 8) != 0) _exit(2);
    if (fallocate(9, 0, 0, 16) != 0 && errno != EIO) _exit(3);
    /* Synchronous: on the disk, but an older record may come back. */
    if (write(2, "child", 5) != -1 || errno != EIO) _exit(4);
    close(fd);
    open("/dev/null", O_RDWR);
    if (write(fd, "x", 1) != 1) _exit(5);
    _exit(0);
  }
  ends_well(child);
  REQUIRE(write(fd, "parent", 6) == 6);
}

/* Runs after an exec, or says which variables there are. */
static void after_exec(void) {
  const int fd = open("after", O_WRONLY | O_CREAT, 0644);
  REQUIRE(write(fd, getenv("MINE") == NULL ? "none" : getenv("MINE"), 4) == 4);
}

static void inherited_descriptor(void) {
  const char* number = getenv("FD");
  REQUIRE(number != NULL);
  const int fd = atoi(number);
  REQUIRE((fcntl(fd, F_GETFL) & O_SYNC) == O_DSYNC);
  REQUIRE(write(fd, "inherited", 9) == 9);
}

static void exec_passes_descriptors(void) {
  const int fd = open("f", O_WRONLY | O_CREAT | O_DSYNC, 0644);
  char text[16];
  snprintf(text, sizeof(text), "%d", fd);
  setenv("FD", text, 1);
  execl(subject_path, subject_path, "inherited_descriptor", NULL);
  REQUIRE(0);
}

static char* const none[] = {NULL};
static char* const mine[] = {"MINE=mine", NULL};

static void run(int which) {
  char* const list[] = {(char*)subject_path, "after_exec", NULL};
  const pid_t child = fork();
  if (child != 0) {
    ends_well(child);
    return;
  }
  const char* path = subject_path;
  switch (which) {
    case 0:
      execve(path, list, mine);
      break;
    case 1:
      execle(path, path, "after_exec", NULL, mine);
      break;
    case 2:
      execvpe(path, list, mine);
      break;
    case 3:
      execveat(AT_FDCWD, path, list, mine, 0);
      break;
    case 4:
      fexecve(open(path, O_RDONLY), list, mine);
      break;
    case 5:
      execveat(open(path, O_PATH), "", list, mine, AT_EMPTY_PATH);
      break;
    case 6:
      syscall(SYS_execve, path, list, mine);
      break;
    case 7:
      clearenv();
      execv(path, list);
      break;
    case 8:
      clearenv();
      execvp(path, list);
      break;
    case 9:
      clearenv();
      execl(path, path, "after_exec", NULL);
      break;
    case 10:
      clearenv();
      execlp(path, path, "after_exec", NULL);
      break;
    case 11:
      unsetenv("LD_PRELOAD");
      execv(path, list);
      break;
    default:
      setenv("LD_PRELOAD", "", 1);
      setenv("SALIUS_DIRECT_VOLUME", "/elsewhere", 1);
      execv(path, list);
  }
  _exit(1);
}

static void exec_family(void) {
  for (int which = 0; which <= 12; ++which) run(which);
}

static void spawn_cuts(void) {
  char* const list[] = {"true", NULL};
  posix_spawn_file_actions_t actions;
  pid_t child;
  const int fd = subject_file("f");
  REQUIRE(write(fd, "hello", 5) == 5);
  REQUIRE(posix_spawn_file_actions_init(&actions) == 0);
  REQUIRE(posix_spawn_file_actions_addopen(&actions, 9, "f", O_RDONLY, 0) == 0);
  REQUIRE(posix_spawn(&child, "/bin/true", &actions, NULL, list, environ) == 0);
  ends_well(child);
  REQUIRE(posix_spawn_file_actions_addopen(&actions, 8, "f", O_WRONLY | O_TRUNC, 0) == 0);
  REQUIRE(posix_spawn(&child, "/bin/true", &actions, NULL, list, environ) == 0);
  ends_well(child);
  REQUIRE(lseek(fd, 0, SEEK_END) == 0);
  /* The actions are carried out before the program is looked for. */
  REQUIRE(posix_spawnp(&child, "absent-program", &actions, NULL, list, environ) == ENOENT);
  REQUIRE(posix_spawn(&child, "/bin/true", NULL, NULL, list, environ) == 0);
  ends_well(child);
  REQUIRE(posix_spawn_file_actions_destroy(&actions) == 0);
}

static void spawn_family(void) {
  char* const list[] = {(char*)subject_path, "after_exec", NULL};
  pid_t child;
  REQUIRE(posix_spawn(&child, subject_path, NULL, NULL, list, mine) == 0);
  ends_well(child);
  REQUIRE(posix_spawnp(&child, subject_path, NULL, NULL, list, none) == 0);
  ends_well(child);
  REQUIRE(posix_spawnp(&child, "absent-program", NULL, NULL, list, none) == ENOENT);
  clearenv();
  char command[4096];
  snprintf(command, sizeof(command), "%s after_exec", subject_path);
  REQUIRE(system(command) == 0);
  FILE* stream = popen(command, "r");
  REQUIRE(stream != NULL && pclose(stream) == 0);
}

static void exec_errors(void) {
  FAILS(execl("absent", "absent", NULL), ENOENT);
  FAILS(execlp("absent-program", "absent", NULL), ENOENT);
  FAILS(execl(".", ".", NULL), EACCES);
  const int fd = subject_file("text");
  REQUIRE(write(fd, "hello", 5) == 5);
  FAILS(execl("text", "text", NULL), EACCES);
}

/* The programs to be refused are made by the test. */
static void refused(void) {
  const char* path = getenv("REFUSED");
  char* const list[] = {"x", NULL};
  pid_t child;
  FAILS(execv(path, list), EPERM);
  FAILS(execvp(path, list), EPERM);
  FAILS(execl(path, "x", NULL), EPERM);
  FAILS(execveat(AT_FDCWD, path, list, environ, 0), EPERM);
  REQUIRE(posix_spawn(&child, path, NULL, NULL, list, environ) == EPERM);
  REQUIRE(posix_spawnp(&child, path, NULL, NULL, list, environ) == EPERM);
}

/* Removes the library from its place, as a chroot does. */
static void library_is_gone(void) {
  char path[4096];
  snprintf(path, sizeof(path), "%s", getenv("LD_PRELOAD"));
  REQUIRE(unlink(path) == 0);
  FAILS(execl("/bin/true", "true", NULL), EPERM);
  FAILS(execl("/bin/absent", "true", NULL), ENOENT);
}

static void daemon_style(void) {
  REQUIRE(dup2(subject_file("f"), 1) == 1);
  const pid_t child = fork();
  if (child != 0) {
    ends_well(child);
    /* The grandchild writes this when it is done. */
    while (access("done", F_OK) != 0) usleep(1000);
    return;
  }
  REQUIRE(daemon(1, 0) == 0);
  /* Descriptor 1 is /dev/null now. */
  REQUIRE(write(1, "lost", 4) == 4);
  for (int fd = 3; fd < 1024; ++fd) close(fd);
  const int fd = open("g", O_WRONLY | O_CREAT, 0644);
  REQUIRE(write(fd, "daemon", 6) == 6);
  REQUIRE(mknod("done", 0600, 0) == 0);
}

/* Descriptor 1 is the terminal afterwards, and no longer the file. */
static void terminal(void) {
  REQUIRE(dup2(subject_file("f"), 1) == 1);
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
  const pid_t child = fork();
  if (child == 0) {
    REQUIRE(login_tty(open(ptsname(master), O_RDWR | O_NOCTTY)) == 0);
    REQUIRE(write(1, "x", 1) == 1);
    _exit(0);
  }
  ends_well(child);
  char byte = 0;
  REQUIRE(read(master, &byte, 1) == 1 && byte == 'x');
}

const struct subject_case process_cases[] = {{"fork_family", fork_family},
                                             {"clone_calls", clone_calls},
                                             {"clone_calls_of_other_kinds", clone_calls_of_other_kinds},
                                             {"forked_children_give_locks_back",
                                              forked_children_give_locks_back},
                                             {"vfork_child", vfork_child},
                                             {"vfork_child_writes", vfork_child_writes},
                                             {"vfork_child_writes_elsewhere",
                                              vfork_child_writes_elsewhere},
                                             {"after_exec", after_exec},
                                             {"inherited_descriptor", inherited_descriptor},
                                             {"exec_passes_descriptors", exec_passes_descriptors},
                                             {"exec_family", exec_family},
                                             {"spawn_cuts", spawn_cuts},
                                             {"spawn_family", spawn_family},
                                             {"exec_errors", exec_errors},
                                             {"refused", refused},
                                             {"library_is_gone", library_is_gone},
                                             {"daemon_style", daemon_style},
                                             {"terminal", terminal},
                                             {NULL, NULL}};

/* The C interface for programs on a Salius volume that know about durability: salius_osync(3),
 * salius_dsync(3), salius_notify(3), salius_wait(3), salius_watermarks(3). Link with -lsalius.
 *
 * Each function takes an open file or directory of the volume. It returns 0 or a value that is not
 * negative; on failure -1, with errno set:
 *
 *   ENOTTY   the file is on no Salius volume
 *   ENOTSUP  the volume cannot do this (a direct volume has no osync)
 *   EBADF    fd is not open
 *   EIO      the volume has failed: it reports no success any more
 *
 * Threads: any, also several on one descriptor. The functions are no cancellation points.
 */
#ifndef SALIUS_SALIUS_H_
#define SALIUS_SALIUS_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef SALIUS_WATERMARKS_DEFINED
#define SALIUS_WATERMARKS_DEFINED
/* The marks of the volume's session at one instant: the numbers of the last record on the primary's
 * disk, applied to the files, durable, and issued. checkpoint <= applied <= durable <= issued. */
struct salius_watermarks {
  uint64_t checkpoint;
  uint64_t applied;
  uint64_t durable;
  uint64_t issued;
};
#endif

/* Orders: after a crash no change made after this call is there without all changes of the volume
 * that were made before. Does not wait for durability. */
int salius_osync(int fd);

/* Returns when the data, attributes and names of the file are durable, under every contract. */
int salius_dsync(int fd);

/* Returns at once, with a ticket (0: nothing was left to wait for). Adds 1 to the eventfd when what
 * salius_dsync would wait for is durable, or when the volume fails: salius_wait tells which. */
int64_t salius_notify(int fd, int eventfd);

/* Returns when everything up to the ticket is durable. `timeout_ns`: nanoseconds; negative: without
 * limit. ETIMEDOUT: not durable by then. EINVAL: no ticket of this session. */
int salius_wait(int fd, int64_t ticket, int64_t timeout_ns);

/* Reads the marks. */
int salius_watermarks(int fd, struct salius_watermarks *marks);

#ifdef __cplusplus
}
#endif

#endif /* SALIUS_SALIUS_H_ */

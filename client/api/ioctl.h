/* The ioctls on files of a Salius volume, for C and C++.
 *
 * On a mount the daemon answers them. On a direct volume the preload library's ioctl() does; the
 * kernel never receives them. Any open file or directory of the volume will do, but a descriptor
 * that was opened with O_PATH. Files elsewhere give ENOTTY. Stores through a shared map count from
 * their write-back on: msync() them first.
 *
 * The numbers and the layouts are never changed or reused. Reserved fields must be 0, else EINVAL.
 * Every call may also fail with EIO: the volume has failed.
 */
#ifndef SALIUS_CLIENT_API_IOCTL_H_
#define SALIUS_CLIENT_API_IOCTL_H_

#include <linux/ioctl.h>
#include <stdint.h>

#ifndef SALIUS_WATERMARKS_DEFINED
#define SALIUS_WATERMARKS_DEFINED
/* As in salius.h: checkpoint <= applied <= durable <= issued. */
struct salius_watermarks {
  uint64_t checkpoint;
  uint64_t applied;
  uint64_t durable;
  uint64_t issued;
};
#endif

/* The arguments of SALIUS_IOC_NOTIFY. */
struct salius_ioc_notify {
  int32_t eventfd; /* in: of the caller; 1 is added to it once */
  uint32_t flags;  /* in: 0 */
  uint64_t ticket; /* out: for SALIUS_IOC_WAIT; 0: everything was durable already */
};

/* The arguments of SALIUS_IOC_WAIT. */
struct salius_ioc_wait {
  uint64_t ticket;    /* in: of SALIUS_IOC_NOTIFY; 0: returns at once */
  int64_t timeout_ns; /* in: nanoseconds; below 0: without limit */
};

/* The argument of SALIUS_IOC_GATE: the path of a unix socket, with a terminating 0. */
struct salius_ioc_gate {
  char path[108];
};

/* Reads the marks. A direct volume applies a record before it is issued: applied is issued there. */
#define SALIUS_IOC_WATERMARKS _IOR('S', 1, struct salius_watermarks)

/* Orders: after a crash, an operation issued after this call is there only if every change of the
 * volume issued before it is. Returns at once. ENOTSUP on a direct volume, which promises no
 * order. */
#define SALIUS_IOC_OSYNC _IO('S', 2)

/* Returns when the file's data, attributes and names are durable, and on a mount every operation
 * before them: what fsync() does under commit=sync. Under every contract. */
#define SALIUS_IOC_DSYNC _IO('S', 3)

/* Returns at once, and adds 1 to the eventfd when what SALIUS_IOC_DSYNC would wait for is durable.
 * EBADF or EINVAL: no eventfd. ENOTSUP: the daemon cannot see the caller's process. When the volume
 * fails first, 1 is added as well: SALIUS_IOC_WAIT then gives EIO. */
#define SALIUS_IOC_NOTIFY _IOWR('S', 4, struct salius_ioc_notify)

/* Returns when everything up to the ticket is durable. ETIMEDOUT: it is not within the timeout.
 * EINVAL: the session has issued no such ticket. */
#define SALIUS_IOC_WAIT _IOW('S', 5, struct salius_ioc_wait)

/* Grants this open file early return (1), or gives it back (0): synchronous calls on it return at
 * once. Only for a process whose outputs are gated (salius-run), under commit=external; else
 * EPERM. */
#define SALIUS_IOC_EARLY _IOW('S', 6, uint32_t)

/* Returns the socket that hands out the mount's gate page. ENOTSUP: no commit=external. */
#define SALIUS_IOC_GATE _IOR('S', 7, struct salius_ioc_gate)

#endif /* SALIUS_CLIENT_API_IOCTL_H_ */

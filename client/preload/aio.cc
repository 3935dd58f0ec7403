// POSIX asynchronous I/O, and the calls of libaio.
//
// aio_write and aio_fsync on a file of the volume are made at once, as pwrite(2) and fsync(2) are,
// and are complete when the call returns: the C library would make them in a thread of its own,
// unseen. The kernel's own asynchronous I/O is refused with ENOSYS, as on a kernel without it.
//
// Relied on: salius-run's seccomp filter answers ENOSYS to io_uring_setup(2), io_setup(2) and
// io_submit(2) that are made by a system call instruction outside of the C library.
#include <aio.h>
#include <alloca.h>
#include <fcntl.h>
#include <linux/aio_abi.h>

#include <cerrno>

#include "client/preload/export.h"
#include "client/preload/library.h"
#include "client/preload/raw_call.h"
#include "client/preload/real_calls.h"
#include "client/preload/write.h"

namespace salius::preload {
namespace {

bool Tracked(int fd) { return !library.Passes(fd) && library.Look(fd).tracked(); }

// The request is complete: `result` is what its system call returned, with errno set.
void Complete(aiocb* request, ssize_t result) {
  request->__error_code = result < 0 ? errno : 0;
  request->__return_value = result;
}

// Sends the notification, as the C library does for a list of requests that are all complete.
void Notify(sigevent* event) {
  aiocb* none[1] = {nullptr};
  real_calls.lio_listio(LIO_NOWAIT, none, 0, event);
}

// Writes at once. Returns false when the descriptor is not of the volume.
bool WriteNow(aiocb* request) {
  ssize_t result;
  const WriteCall call = {.fd = request->aio_fildes,
                          .data = const_cast<const void*>(request->aio_buf),
                          .size = request->aio_nbytes,
                          .positioned = true,
                          .offset = request->aio_offset};
  if (!WriteTracked(call, &result)) return false;
  Complete(request, result);
  return true;
}

int AioWrite(int (*real)(aiocb*), aiocb* request) {
  if (!library.on() || !WriteNow(request)) return real(request);
  Notify(&request->aio_sigevent);
  return 0;
}

int AioFsync(int (*real)(int, aiocb*), int operation, aiocb* request) {
  const int fd = request->aio_fildes;
  if (!library.on() || (operation != O_SYNC && operation != O_DSYNC) || !Tracked(fd)) {
    return real(operation, request);
  }
  const int failed = library.Sync(fd, library.Look(fd), operation == O_DSYNC);
  Complete(request, Returned(-failed));
  Notify(&request->aio_sigevent);
  return 0;
}

int ListIo(int (*real)(int, aiocb* const*, int, sigevent*), int mode, aiocb* const* list, int count,
           sigevent* event) {
  if (!library.on() || count <= 0) return real(mode, list, count, event);
  auto** rest = static_cast<aiocb**>(alloca(static_cast<size_t>(count) * sizeof(aiocb*)));
  bool failed = false;
  for (int i = 0; i < count; ++i) {
    rest[i] = list[i];
    if (list[i] == nullptr || list[i]->aio_lio_opcode != LIO_WRITE || !WriteNow(list[i])) continue;
    rest[i] = nullptr;
    failed |= list[i]->__error_code != 0;
    if (mode == LIO_NOWAIT) Notify(&list[i]->aio_sigevent);
  }
  const int result = real(mode, rest, count, event);
  if (!failed || mode != LIO_WAIT || result != 0) return result;
  errno = EIO;
  return -1;
}

}  // namespace
}  // namespace salius::preload

using salius::preload::library;
using salius::preload::real_calls;

// aiocb64 is aiocb here.
SALIUS_INTERPOSE(int, aio_write, aiocb* request) {
  return salius::preload::AioWrite(real_calls.aio_write, request);
}
SALIUS_INTERPOSE(int, aio_write64, aiocb* request) {
  return salius::preload::AioWrite(real_calls.aio_write64, request);
}
SALIUS_INTERPOSE(int, aio_fsync, int operation, aiocb* request) {
  return salius::preload::AioFsync(real_calls.aio_fsync, operation, request);
}
SALIUS_INTERPOSE(int, aio_fsync64, int operation, aiocb* request) {
  return salius::preload::AioFsync(real_calls.aio_fsync64, operation, request);
}
SALIUS_INTERPOSE(int, lio_listio, int mode, aiocb* const* list, int count, sigevent* event) {
  return salius::preload::ListIo(real_calls.lio_listio, mode, list, count, event);
}
SALIUS_INTERPOSE(int, lio_listio64, int mode, aiocb* const* list, int count, sigevent* event) {
  return salius::preload::ListIo(real_calls.lio_listio64, mode, list, count, event);
}

// libaio's functions return -errno.
SALIUS_INTERPOSE(int, io_setup, int most, void** context) {
  if (library.on()) return -ENOSYS;
  return static_cast<int>(salius::preload::Raw(SYS_io_setup, most, context));
}
SALIUS_INTERPOSE(int, io_submit, void* context, long count, iocb** requests) {
  if (library.on()) return -ENOSYS;
  return static_cast<int>(salius::preload::Raw(SYS_io_submit, context, count, requests));
}

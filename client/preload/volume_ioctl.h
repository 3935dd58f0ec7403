// The ioctls of client/api/ioctl.h on files and directories of the volume.
#pragma once

namespace salius::preload {

// Answers the request if it is one of them and `fd` is of the volume: stores what ioctl(2) returns,
// with errno set. Returns false otherwise: the kernel answers.
//
// | request | answer |
// |---|---|
// | WATERMARKS, DSYNC, WAIT | as on a mount |
// | NOTIFY | as on a mount; a thread of the process waits |
// | OSYNC | ENOTSUP: the page cache may reach the disk in any order |
// | EARLY | 0 when the outputs of this process are gated, else EPERM |
// | GATE | ENOTSUP: there is no daemon |
bool VolumeIoctl(int fd, unsigned long request, void* argument, int* result);

}  // namespace salius::preload

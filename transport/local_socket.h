// The unix socket beside a replica's loopback address, for control calls without keys: the kernel
// says who calls. The server is LocalServer (transport/local_server.h).
//
// A replica of root or of a system user has it in /run/salius-replica, one of another user in
// /run/user/UID/salius-replica. The name contains the address: "127.0.0.1-7400.sock".
//
// Threads: any.
#pragma once

#include <sys/un.h>

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/net.h"

namespace salius {

inline constexpr char kLocalSocketDirectory[] = "/run/salius-replica";

// Returns the directory in which this process would make its socket.
std::string LocalSocketDirectory();

// Returns the path for a replica at `address` below `directory`.
std::string LocalSocketPath(const std::string& directory, const SocketAddress& address);

// The choice for a loopback address where no process listens at the socket.
enum class NoSocket { kUseTcp, kFail };

// Returns the path of the socket of the replica at "host:port", if a process listens there or if this
// user may not connect to it; else "". With NoSocket::kFail it returns the path also if none listens
// there, for a loopback address. The host must be a loopback address or "localhost": no name server
// is asked.
std::string FindLocalSocket(std::string_view host_port, NoSocket without = NoSocket::kUseTcp);

// Returns the address of a unix socket. INVALID_ARGUMENT: the path is too long.
absl::StatusOr<sockaddr_un> UnixSocketAddress(const std::string& path);

}  // namespace salius

// One echo server of the replication floor (client/cli/echo.h) as a program, for floors that are
// put together by hand: prints "127.0.0.1:PORT" when it can receive, and answers until it is
// killed.
#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdio>
#include <cstdlib>

#include "client/cli/echo.h"

int main(int argc, char** argv) {
  const char* const host = argc > 1 ? argv[1] : "127.0.0.1";
  sockaddr_in address{};
  absl::StatusOr<salius::UniqueFd> fd = salius::cli::BindUdp(host, &address);
  if (!fd.ok()) {
    std::fprintf(stderr, "echo_server: %s\n", fd.status().ToString().c_str());
    return EXIT_FAILURE;
  }
  std::printf("%s:%u\n", host, ntohs(address.sin_port));
  std::fflush(stdout);
  const absl::Status status = salius::cli::ServeEcho(fd->get());
  std::fprintf(stderr, "echo_server: %s\n", status.ToString().c_str());
  return EXIT_FAILURE;
}

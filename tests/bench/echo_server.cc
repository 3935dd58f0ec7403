// One echo server of the replication floor (client/cli/echo.h) as a program, for floors that are
// assembled by hand. It prints "HOST:PORT" when it can receive, and answers until it is killed.
//
//   echo_server [--keep BYTES] [HOST]
//
// --keep: before it answers it does a replica's work, in a ring of that many bytes (ring.h).
#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/cli/echo.h"
#include "common/check.h"
#include "common/options.h"
#include "tests/bench/ring.h"

namespace salius::bench {
namespace {

absl::Status Serve(absl::Span<const std::string> words) {
  Options options("echo_server", "[HOST]", "An echo server of the replication floor.");
  uint64_t keep = 0;
  options.Bytes("keep", "BYTES", &keep, "bytes of the ring that keeps received data");
  SALIUS_RETURN_IF_ERROR(options.Parse(words, 0, 1));
  const std::string host = options.places().empty() ? "127.0.0.1" : options.places()[0];
  sockaddr_in address{};
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd fd, cli::BindUdp(host, &address));
  Ring ring(keep);
  std::printf("%s:%u\n", host.c_str(), ntohs(address.sin_port));
  std::fflush(stdout);
  return cli::ServeEcho(fd.get(), [&ring](absl::Span<const uint8_t> data) { ring.Keep(data); });
}

}  // namespace
}  // namespace salius::bench

int main(int argc, char** argv) {
  const absl::Status status = salius::bench::Serve(std::vector<std::string>(argv + 1, argv + argc));
  std::fprintf(stderr, "echo_server: %s\n", status.ToString().c_str());
  return EXIT_FAILURE;
}

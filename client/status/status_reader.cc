#include "client/status/status_reader.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "proto/control.grpc.pb.h"

namespace salius {

std::vector<std::string> VolumeSocketsIn(const std::string& run_directory) {
  std::vector<std::string> sockets;
  std::error_code error;
  for (std::filesystem::directory_iterator at(run_directory, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".sock") sockets.push_back(at->path());
  }
  std::sort(sockets.begin(), sockets.end());
  return sockets;
}

absl::StatusOr<control::VolumeStatusResponse> ReadVolumeStatus(const std::string& socket_path,
                                                               std::chrono::milliseconds timeout) {
  const auto stub = control::Primary::NewStub(
      grpc::CreateChannel("unix:" + socket_path, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  control::VolumeStatusResponse response;
  const grpc::Status status =
      stub->VolumeStatus(&context, control::VolumeStatusRequest(), &response);
  if (status.ok()) return response;
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(socket_path, ": ", status.error_message()));
}

}  // namespace salius

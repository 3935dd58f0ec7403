"""salius_cc_proto: C++ messages and gRPC stubs from one .proto file."""

def salius_cc_proto(name, src, deps = [], grpc = True, visibility = None):
    """Declares a cc_library with the code generated from src.

    Include it as "<package>/<src without .proto>.pb.h" (and ".grpc.pb.h"). Imports inside a .proto
    are written from the root of the repository ("proto/control.proto").

    Args:
      name: name of the cc_library.
      src: the .proto file, in this package.
      deps: salius_cc_proto targets whose .proto files src imports.
      grpc: also generate the gRPC service stubs.
      visibility: as usual.
    """
    if not src.endswith(".proto"):
        fail("salius_cc_proto: %s is not a .proto file" % src)
    base = src[:-len(".proto")]
    headers = [base + ".pb.h"]
    sources = [base + ".pb.cc"]
    if grpc:
        headers.append(base + ".grpc.pb.h")
        sources.append(base + ".grpc.pb.cc")

    native.filegroup(
        name = name + "_proto_srcs",
        srcs = [src] + [d + "_proto_srcs" for d in deps],
        visibility = visibility,
    )

    command = "protoc --proto_path=. --cpp_out=$(GENDIR)"
    if grpc:
        command += " --grpc_out=$(GENDIR) --plugin=protoc-gen-grpc=$$(command -v grpc_cpp_plugin)"
    command += " $(location %s)" % src

    # Our own warning options do not apply to generated headers.
    for header in headers:
        command += " && sed -i '1i #pragma GCC system_header' $(location %s)" % header
    native.genrule(
        name = name + "_gen",
        srcs = [":" + name + "_proto_srcs", src],
        outs = headers + sources,
        cmd = command,
    )
    native.cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        copts = ["-w"],
        visibility = visibility,
        deps = deps + (["@grpc//:grpc"] if grpc else ["@grpc//:protobuf"]),
    )

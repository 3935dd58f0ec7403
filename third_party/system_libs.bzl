"""The system libraries that Salius uses, each as a Bazel repository."""

load("//third_party:pkg_config.bzl", "pkg_config")

# Which module has a header: tests/libraries/check.py.
_ABSL_MODULES = (
    "algorithm_container any_invocable btree cleanup config cord core_headers flat_hash_map flat_hash_set " +
    "function_ref inlined_vector span status statusor str_format strings synchronization time"
).split(" ")

def salius_system_libs():
    """Declares @absl, @spdlog and so on; names of targets are in third_party/README.md."""
    pkg_config(
        name = "absl",
        targets = {module: ["absl_" + module] for module in _ABSL_MODULES},
        tsan_deps = ["@salius//third_party/absl_tsan"],
    )
    pkg_config(name = "benchmark", targets = {
        "benchmark": ["benchmark"],
        "benchmark_main": [":benchmark", "-lbenchmark_main"],
    })
    pkg_config(name = "cli11", targets = {"cli11": ["CLI11"]})
    pkg_config(name = "fuse3", targets = {"fuse3": ["fuse3", "-D_FILE_OFFSET_BITS=64"]})
    pkg_config(name = "grpc", targets = {
        "grpc": ["grpc++", "protobuf", "-lgrpc++_reflection"],
        "protobuf": ["protobuf"],
    })
    pkg_config(name = "gtest", targets = {
        "gtest": ["gmock", "gtest"],
        "gtest_main": ["gmock_main", "gmock", "gtest"],
    })
    pkg_config(
        name = "isal",
        targets = {"isal": ["libisal"]},
        x86_64_symbols = {"isal": ["crc32_iscsi_01"]},
    )
    pkg_config(name = "json", targets = {"json": ["nlohmann_json"]})
    pkg_config(name = "libcrypto", targets = {
        "libcrypto": ["libcrypto"],
        "libssl": ["libssl", ":libcrypto"],
    })
    pkg_config(name = "libpq", targets = {"libpq": ["libpq"]})
    pkg_config(
        name = "nettle",
        # The archive: libsalius_preload.so may need no shared library but the C library.
        targets = {"nettle": ["-l:libnettle.a"]},
        x86_64_symbols = {"nettle": ["nettle_gcm_aes128_encrypt"]},
    )
    pkg_config(name = "prometheus", targets = {"prometheus": ["prometheus-cpp-pull", "prometheus-cpp-core"]})
    pkg_config(name = "rapidcheck", targets = {
        # <rapidcheck/gtest.h> needs gtest, which the target brings along.
        "rapidcheck": ["-lrapidcheck", "@gtest//:gtest"],
    })
    pkg_config(name = "spdlog", targets = {"spdlog": ["spdlog"]})
    pkg_config(name = "sqlite3", targets = {"sqlite3": ["sqlite3"]})
    pkg_config(name = "systemd", targets = {"systemd": ["libsystemd"]})
    pkg_config(name = "toml", targets = {
        # Header only, and errors as values: no exception leaves the parser.
        "toml": ["-DTOML_HEADER_ONLY=1", "-DTOML_EXCEPTIONS=0"],
    })

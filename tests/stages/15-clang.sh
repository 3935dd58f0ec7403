# shellcheck shell=bash
# clang finds three errors that g++ does not: a dropped absl::Status, a format that does not fit its
# arguments, and a guarded variable used without its lock. Builds the programs and their libraries,
# with the sanitizers, because later stages (instrumented, fuzz, sanitize) use the same objects; with
# --long the tests too.
clang_targets=(//client/... //replica/... //recovery/...)
! is_long || clang_targets=(//...)
check "build with clang" bazel build --config=asan --color=no --noshow_progress "${clang_targets[@]}"

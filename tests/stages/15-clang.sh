# shellcheck shell=bash
# clang finds three errors that g++ does not: a dropped absl::Status, a format that does not fit its
# arguments, and a guarded variable used without its lock. Builds the programs and their libraries;
# with --long the tests too.
clang_targets=(//client/... //replica/... //recovery/...)
! is_long || clang_targets=(//...)
check "build --config=clang" bazel build --config=clang --color=no --noshow_progress "${clang_targets[@]}"

# shellcheck shell=bash
# clang sees three things that g++ does not: a dropped absl::Status, a format that does not fit its
# arguments, and a guarded variable touched without its lock.
if [ "$ci" -eq 1 ]; then  # --ci, --long
  check "build --config=clang //..." bazel build --config=clang --color=no --noshow_progress //...
else
  check "build --config=clang //common/..." \
    bazel build --config=clang --color=no --noshow_progress //common/...
fi

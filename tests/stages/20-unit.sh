# shellcheck shell=bash
# The unit tests, and simulated sessions; and that the bugs that are planted in the guarantees' code have their place.
bazel_test "unit tests" //tests/unit/... //tests/sim/...
check "planted bugs have their place" tests/mutations/run.py --patterns

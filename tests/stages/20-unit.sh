# shellcheck shell=bash
# The unit tests and simulated sessions. Checks also that each planted bug still finds its place in
# the code, that each case of docs/recovery.md has a test, that comments and documents are in plain
# language, and that each section that a message or document names exists (tests/language).
bazel_test "unit tests" //tests/unit/... //tests/sim/...
check "planted bugs have their place" tests/mutations/run.py --patterns
check "the search for their places" python3 -m unittest tests.mutations.test_cpp_source
check "cases of recovery have tests" tests/recovery_cases.py
check "plain language" python3 tests/language/check.py
check "the check of the language" python3 -m unittest tests.language.test_check
check "named sections of documents" python3 tests/language/anchors.py
check "the check of the sections" python3 -m unittest tests.language.test_anchors

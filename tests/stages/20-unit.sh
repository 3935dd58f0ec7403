# shellcheck shell=bash
# The unit tests and simulated sessions. Checks also that each planted bug still finds its place in
# the code, that each case of docs/recovery.md has a test, that comments and documents are in plain
# language, that each section that a message or document names exists (tests/language), that man
# pages, samples and bash completion have the options of the programs (tests/options), that each
# target lists the system libraries that it uses (tests/libraries), how much the systemd units may do
# (tests/units), and which failed tests with real parts run again (tests/harness).
bazel_test "unit tests" //tests/unit/... //tests/sim/...
check "planted bugs have their place" tests/mutations/run.py --patterns
check "the search for their places" python3 -m unittest tests.mutations.test_cpp_source
check "cases of recovery have tests" tests/recovery_cases.py
check "plain language" python3 tests/language/check.py
check "the check of the language" python3 -m unittest tests.language.test_check
check "named sections of documents" python3 tests/language/anchors.py
check "the check of the sections" python3 -m unittest tests.language.test_anchors
check "build the programs" bazel build --color=no --noshow_progress \
  //client/cli:salius //client/mount:salius-mount //recovery:salius-recover //replica:salius-replica
check "options in documents" python3 -m tests.options.documents
check "the check of the options" python3 -m unittest tests.options.test_documents
check "bash completion is up to date" python3 -m tests.options.completion
check "bash completion" python3 -m unittest tests.options.test_completion
second_tries() { (cd tests && /usr/bin/python3 -m unittest harness.test_second_try); }
check "second tries of late tests" second_tries
check "libraries of each target" python3 tests/libraries/check.py
check "the check of the libraries" python3 -m unittest tests.libraries.test_check
check "sandboxes of the systemd units" python3 -m unittest tests.units.test_units

# shellcheck shell=bash
# Builds the programs with sanitizers for the stage sanitized, which runs beside the builds that
# follow. $work/bin-CONFIG says where they are.
build_instrumented() {
  bazel build --config="$1" --color=no --noshow_progress //client/cli:salius //client/mount:salius-mount \
    //recovery:salius-recover //replica:salius-replica &&
    bazel info --config="$1" bazel-bin 2>/dev/null >"$work/bin-$1"
}
for config in asan tsan; do
  check "programs: build with $config" build_instrumented $config
done

"""salius_fuzzer: one fuzz target; each build runs its corpus, --config=fuzz explores."""

def salius_fuzzer(name, srcs, deps = [], corpus = [], **kwargs):
    """Declares the fuzzer of a decoder. srcs define LLVMFuzzerTestOneInput.

    In a plain build the target is a cc_test that runs the function once over each file of the
    corpus. So the fuzzer compiles and old findings stay found. Under --config=fuzz it is linked
    with libFuzzer. As a test it then also runs the corpus only. To explore:

        bazel build --config=fuzz //log:record_fuzzer
        bazel-bin/log/record_fuzzer -max_total_time=60 /tmp/corpus

    Args:
      name: name of the test; ends in _fuzzer.
      srcs: the sources.
      deps: the libraries.
      corpus: the files to run, as labels; may be empty.
      **kwargs: for the cc_test.
    """
    tags = kwargs.pop("tags", [])
    native.cc_test(
        name = name,
        size = "small",
        srcs = srcs,
        args = ["$(locations %s)" % c for c in corpus],
        data = corpus,
        linkopts = select({
            "//:fuzz": ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        tags = tags + ["fuzzer"],
        deps = deps + select({
            "//:fuzz": [],
            "//conditions:default": ["//third_party/fuzz_main"],
        }),
        **kwargs
    )

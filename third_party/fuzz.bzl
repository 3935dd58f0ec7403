"""salius_fuzzer: one fuzz target, run over its corpus in every build and explored under --config=fuzz."""

def salius_fuzzer(name, srcs, deps = [], corpus = [], **kwargs):
    """A decoder's fuzzer. srcs define LLVMFuzzerTestOneInput.

    In a plain build the target is a cc_test that runs the function once over each file of the
    corpus, so that the fuzzer compiles and old findings stay found. Under --config=fuzz it is
    linked with libFuzzer; as a test it then also runs the corpus only, and to explore:

        bazel build --config=fuzz //log:record_fuzzer
        bazel-bin/log/record_fuzzer -max_total_time=60 /tmp/corpus

    Args:
      name: name of the test; ends in _fuzzer.
      srcs: the sources.
      deps: the libraries.
      corpus: files that are run over, as labels; may be empty.
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

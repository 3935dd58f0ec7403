"""Precompiled headers, of which each configuration has its own."""

def precompiled_header(name, src, deps, testonly = False, visibility = None):
    """Precompiles a header: declares the library NAME, which has NAME.h and NAME.h.gch.

    A cc_library compiles it, so that it gets every option of the configuration. Its "object" is the
    precompiled header, which is never linked.

    Args:
      name: name of the library.
      src: the header; ends in .cc, so that the cc_library compiles it.
      deps: the libraries whose headers it includes.
      testonly: as usual.
      visibility: as usual.
    """
    native.cc_library(
        name = name + "_compile",
        testonly = testonly,
        srcs = [src],
        copts = ["-x", "c++-header"] + select({
            # The paths and times in the result do not depend on where it was made.
            "//third_party/clang:used": [
                "-fpch-instantiate-templates",
                "-working-directory=/proc/self/cwd",
                "-Xclang",
                "-fno-pch-timestamp",
            ],
            "//conditions:default": [],
        }),
        tags = ["manual"],
        deps = deps,
    )
    native.filegroup(
        name = name + "_object",
        testonly = testonly,
        srcs = [":%s_compile" % name],
        output_group = "compilation_outputs",
        tags = ["manual"],
    )
    native.genrule(
        name = name + "_files",
        testonly = testonly,
        srcs = [src, ":%s_object" % name],
        outs = [name + ".h", name + ".h.gch"],
        tags = ["manual"],
        cmd = "cp $(location {src}) $(location {name}.h) && ".format(src = src, name = name) +
              "cp $(location :{name}_object) $(location {name}.h.gch)".format(name = name),
    )
    native.cc_library(
        name = name,
        testonly = testonly,
        textual_hdrs = [src, name + ".h", name + ".h.gch"],
        tags = ["manual"],  # each configuration makes what it uses
        visibility = visibility,
        deps = deps,  # for their definitions of macros
    )

def include_precompiled(label):
    """Returns the compiler options with which a source reads a precompiled header first.

    Both compilers read NAME.h.gch instead of NAME.h. Where its options do not fit, g++ reads NAME.h
    after all, and clang says why.

    Args:
      label: that of precompiled_header, "//package:name"; the source's target depends on it.
    """
    return ["-include", "$(BINDIR)/%s.h" % label[2:].replace(":", "/")]

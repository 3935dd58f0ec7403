"""cc_test and cc_library of the unit tests, which read the common headers precompiled."""

# Both compilers read prelude.h.gch instead of prelude.h. Where its options do not fit, g++ reads
# prelude.h after all, and clang says why.
_INCLUDE = ["-include", "$(BINDIR)/tests/unit/prelude.h"]

def _with_prelude(attributes):
    """Returns the attributes with the precompiled header, if a source of the target uses gtest."""
    listed = [dep for dep in attributes.get("deps", []) if dep.startswith("@gtest//")]
    if not listed or not attributes.get("srcs"):
        return attributes
    return dict(
        attributes,
        copts = _INCLUDE + attributes.get("copts", []),
        deps = attributes["deps"] + ["//tests/unit:prelude"],
    )

def cc_test(**attributes):
    """Declares a cc_test. Its sources must work without the precompiled header too.

    Args:
      **attributes: those of the native rule.
    """
    native.cc_test(**_with_prelude(attributes))

def cc_library(**attributes):
    """Declares a cc_library, in the same way.

    Args:
      **attributes: those of the native rule.
    """
    native.cc_library(**_with_prelude(attributes))

def precompiled_header(name, src, deps):
    """Precompiles a header: declares the library NAME, which has NAME.h and NAME.h.gch.

    A cc_library compiles it, so that it gets every option of the configuration. Its "object" is the
    precompiled header, which is never linked.

    Args:
      name: name of the library.
      src: the header; ends in .cc, so that the cc_library compiles it.
      deps: the libraries whose headers it includes.
    """
    native.cc_library(
        name = name + "_compile",
        testonly = True,
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
        testonly = True,
        srcs = [":%s_compile" % name],
        output_group = "compilation_outputs",
        tags = ["manual"],
    )
    native.genrule(
        name = name + "_files",
        testonly = True,
        srcs = [src, ":%s_object" % name],
        outs = [name + ".h", name + ".h.gch"],
        cmd = "cp $(location {src}) $(location {name}.h) && ".format(src = src, name = name) +
              "cp $(location :{name}_object) $(location {name}.h.gch)".format(name = name),
    )
    native.cc_library(
        name = name,
        testonly = True,
        textual_hdrs = [src, name + ".h", name + ".h.gch"],
        visibility = ["//tests/unit:__subpackages__"],
    )

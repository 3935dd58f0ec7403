"""cc_library of our own code."""

load("//third_party:precompiled.bzl", "include_precompiled")

_PRELUDE = "//third_party/prelude:prelude"

def cc_library(**attributes):
    """Declares a cc_library. With a sanitizer it reads the common headers precompiled.

    The ordinary build does not, so that it finds an include that is missing. Neither does code
    without exceptions: the headers were compiled with them.

    Args:
      **attributes: those of the native rule.
    """
    if attributes.get("srcs") and "-fno-exceptions" not in attributes.get("copts", []):
        attributes["copts"] = attributes.get("copts", []) + select({
            "//:asan": include_precompiled(_PRELUDE),
            "//:tsan": include_precompiled(_PRELUDE),
            "//conditions:default": [],
        })
        attributes["deps"] = attributes.get("deps", []) + select({
            "//:asan": [_PRELUDE],
            "//:tsan": [_PRELUDE],
            "//conditions:default": [],
        })
    native.cc_library(**attributes)

"""cc_library of our own code."""

load("//third_party:precompiled.bzl", "include_precompiled")

_PRELUDE = "//third_party/prelude:prelude"

# For code without a C++ runtime. A user of a class that checks dynamic types
# (-fsanitize=vptr) reads the class's type information.
NO_TYPE_INFORMATION = select({
    "//:asan": [],
    "//:ubsan": [],
    "//conditions:default": ["-fno-rtti"],
})

def cc_library(**attributes):
    """Declares a cc_library. With a sanitizer it reads the common headers precompiled.

    The ordinary build does not, so that it finds an include that is missing. Neither does code
    without exceptions: the headers were compiled with them. Such code has no type information
    either.

    Args:
      **attributes: those of the native rule.
    """
    if "-fno-exceptions" in attributes.get("copts", []):
        attributes["copts"] = attributes["copts"] + NO_TYPE_INFORMATION
    elif attributes.get("srcs"):
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

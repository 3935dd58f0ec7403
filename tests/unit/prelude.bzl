"""cc_test and cc_library of the unit tests, which read the common headers precompiled."""

load("//third_party:precompiled.bzl", "include_precompiled")

_PRELUDE = "//tests/unit:prelude"

def _with_prelude(attributes):
    """Returns the attributes with the precompiled header, if a source of the target uses gtest."""
    listed = [dep for dep in attributes.get("deps", []) if dep.startswith("@gtest//")]
    if not listed or not attributes.get("srcs"):
        return attributes
    return dict(
        attributes,
        copts = include_precompiled(_PRELUDE) + attributes.get("copts", []),
        deps = attributes["deps"] + [_PRELUDE],
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

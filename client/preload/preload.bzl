"""How the preload library is compiled and linked."""

load("//third_party:cc.bzl", "NO_TYPE_INFORMATION")

# No exceptions (and so no type information: cc.bzl), no guards of local statics: there is no C++
# runtime. Thread local storage is reached without a call, which could allocate. Our own definitions
# of open and the like must not meet the fortified ones of the headers.
PRELOAD_COPTS = [
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-threadsafe-statics",
    "-ftls-model=initial-exec",
    "-U_FORTIFY_SOURCE",
]

_SYMBOLS = "//client/preload:symbols.map"

# Before all other libraries' constructors (initfirst), which may call interposed functions. Every
# symbol is found at load time (now): a look-up in the middle of a call could take a lock. A library
# that is not used is not needed (as-needed): ISA-L and the C++ runtime are on the command line.
_LINKOPTS = [
    "-static-libgcc",
    "-Wl,--as-needed",
    "-Wl,-z,now",
    "-Wl,-z,initfirst",
    "-Wl,--gc-sections",
    "-Wl,--version-script=$(location %s)" % _SYMBOLS,
]

def preload_library(name, srcs, deps, **attributes):
    """Declares a shared object of the interposed functions.

    Args:
      name: the file's name.
      srcs: the constructor, which calls Library::Load and Library::Start.
      deps: the libraries of the constructor; //client/preload:interposed is added.
      **attributes: those of cc_binary.
    """
    native.cc_binary(
        name = name,
        srcs = srcs,
        additional_linker_inputs = [_SYMBOLS],
        copts = PRELOAD_COPTS + NO_TYPE_INFORMATION,
        linkopts = _LINKOPTS + select({
            # A shared object leaves the sanitizer's functions to the program.
            "//:asan": [],
            "//:tsan": [],
            "//conditions:default": ["-Wl,-z,defs"],
        }),
        linkshared = True,
        deps = deps + ["//client/preload:interposed"],
        **attributes
    )

"""How the preload library is compiled and linked."""

# No exceptions, no type information, no guards of local statics: there is no C++ runtime. Thread
# local storage is reached without a call, which could allocate. Our own definitions of open and the
# like must not meet the fortified ones of the headers.
PRELOAD_COPTS = [
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-ftls-model=initial-exec",
    "-U_FORTIFY_SOURCE",
]

# Before all other libraries' constructors (initfirst), which may call interposed functions. Every
# symbol is found at load time (now): a look-up in the middle of a call could take a lock.
PRELOAD_LINKOPTS = [
    "-static-libgcc",
    "-Wl,-z,defs",
    "-Wl,-z,now",
    "-Wl,-z,initfirst",
    "-Wl,--gc-sections",
    "-Wl,--version-script=$(location //client/preload:symbols.map)",
]

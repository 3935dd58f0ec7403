"""A repository of cc_library targets for libraries that the system has installed."""

def _run_pkg_config(ctx, target, option, modules):
    result = ctx.execute(["pkg-config", option] + modules)
    if result.return_code != 0:
        fail("@{}//:{}: pkg-config {} {}: {}\nInstall the packages of deploy/packages.sh.".format(
            ctx.name,
            target,
            option,
            " ".join(modules),
            result.stderr.strip(),
        ))
    return [f for f in result.stdout.replace("\n", " ").split(" ") if f]

def _unique(flags):
    seen = {}
    for flag in flags:
        seen[flag] = True
    return seen.keys()

def _require_symbols(ctx, target, linkopts):
    """Fails with a clear message when the library does not export a symbol that our code declares."""
    symbols = ctx.attr.x86_64_symbols.get(target, [])
    if not symbols or ctx.execute(["uname", "-m"]).stdout.strip() != "x86_64":
        return
    for symbol in symbols:
        ctx.file(
            "symbol.c",
            "void {s}(void);\nvoid (*volatile used)(void) = {s};\n".format(s = symbol) +
            "int main(void) { return used == 0; }\n",
        )
        result = ctx.execute(["cc", "symbol.c", "-o", "symbol"] + linkopts)
        if result.return_code != 0:
            fail("@{}//:{}: the installed library does not export {}, which third_party/README.md explains:\n{}".format(
                ctx.name,
                target,
                symbol,
                result.stderr.strip(),
            ))

def _impl(ctx):
    build = ["package(default_visibility = [\"//visibility:public\"])", ""]
    # Every repository lists whole families of libraries; a binary needs few of them at run time.
    as_needed = ["-Wl,--as-needed"]
    for target, entries in ctx.attr.targets.items():
        modules = [e for e in entries if not e.startswith("-") and not e.startswith(":") and not e.startswith("@")]
        linkopts = [e for e in entries if e.startswith("-l")]
        defines = [e[2:] for e in entries if e.startswith("-D")]
        deps = [e for e in entries if e.startswith(":") or e.startswith("@")]
        if modules:
            linkopts = linkopts + _run_pkg_config(ctx, target, "--libs", modules)
            cflags = _run_pkg_config(ctx, target, "--cflags", modules)

            # Headers are found in /usr/include by their full name (<fuse3/fuse.h>): no -I.
            defines = defines + [f[2:] for f in cflags if f.startswith("-D")]
        _require_symbols(ctx, target, linkopts)
        build += [
            "cc_library(",
            "    name = {},".format(repr(target)),
            "    defines = {},".format(repr(_unique(defines))),
            "    linkopts = {},".format(repr(as_needed + _unique(linkopts))),
            "    deps = {} + select({{".format(repr(deps)),
            "        \"@salius//:tsan\": {},".format(repr(ctx.attr.tsan_deps)),
            "        \"//conditions:default\": [],",
            "    }),",
            ")",
            "",
        ]
    ctx.file("BUILD.bazel", "\n".join(build))

pkg_config = repository_rule(
    implementation = _impl,
    attrs = {
        # Target name to its parts: a pkg-config module, "-lname", "-DNAME=value", or a label.
        "targets": attr.string_list_dict(mandatory = True),
        # Target name to symbols that our code declares itself, because no header of the library
        # does. Checked on x86-64, by a program that is linked.
        "x86_64_symbols": attr.string_list_dict(),
        # Further dependencies of every target, under --config=tsan.
        "tsan_deps": attr.string_list(),
    },
    doc = "Makes cc_library targets from pkg-config modules and plain link options.",
    local = True,
)

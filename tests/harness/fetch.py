"""The fetch policies of a mount: when the page of a write that covers a part of it is read."""
import re

from harness.run import binary, sh

BLOCKING, FOREGROUND, BACKGROUND, LAZY = POLICIES = ("blocking", "async-fg", "async-bg", "lazy")


def known():
    """Returns the policies that the programs under test know."""
    found = re.search(r"^  fetch=(\S+)", sh(binary("salius-mount"), "--help").stdout, re.M)
    words = found.group(1).split("|") if found else []
    return [policy for policy in POLICIES if policy in words]


def unknown():
    """Returns words for the report; empty when the programs know all."""
    missing = [policy for policy in POLICIES if policy not in known()]
    return "these programs do not know fetch=%s" % ", ".join(missing) if missing else ""


def options():
    """Returns {policy: mount options}. Programs that know no policy have one: async-bg, of a single
    worker."""
    return {policy: "fetch=" + policy for policy in known()} or {BACKGROUND: ""}

"""Rethink the Sync (Nightingale and others, OSDI 2006), section 4: works whose output waits, beside the
same works that wait for each sync, or for none. Figures 4 to 6 are PostMark, a build and a database;
figure 9 compares sending at once (eager) with sending when an output waits.

The replicas of the mounts are 1 ms away each way; those of the direct volume are on loopback.
"""
import contextlib
import json
import os
import shlex
from dataclasses import dataclass

from bench import trees
from bench.setup import place
from harness.run import binary, sh
from papers.grounds import Grounds, eatmydata
from papers.table import Bar, Work, ratio

TITLE = "Rethink the Sync: external synchrony"
DELAY_MS = 1
SYNC, EXTERNAL, TRIGGERED = "sync", "external, eager", "external, output-triggered"
ORDERED, IGNORED = "ordered", "durability ignored"
BARE, DIRECT = "bare file system, no sync", "external, direct"
LINE_EVERY = 100  # transactions of the direct volume's work


@dataclass
class Sizes:
    rounds: int = 3
    transactions: int = 100
    records: int = 10_000
    postmark: int = 10_000
    files: int = 10_000
    wal: int = 5_000
    commits: int = 100
    sources: int = 40  # of the build
    wire_bytes: int = 16 << 20

    @staticmethod
    def short():
        return Sizes(rounds=1, transactions=20, records=200, postmark=100, files=100, wal=200, commits=3, sources=2,
                     wire_bytes=1 << 20)


class Directories:
    """Gives each run of a work a new directory."""

    def __init__(self):
        self._count = 0

    def __call__(self, ground):
        self._count += 1
        return ground.directory("work%d" % self._count)


def postmark(ground, directory, count):
    """Runs PostMark with the paper's configuration: files of 500 to 10,000 bytes."""
    config = os.path.join(place("postmark%s" % os.path.basename(directory)), "config")
    with open(config, "w") as f:
        f.write("set location %s\nset number %d\nset transactions %d\nset size 500 10000\nrun\nquit\n" % (
            directory, count, count))
    return ground.run("postmark %s" % shlex.quote(config), shell=True)


def tar_of(files):
    """Makes a tar of small files in memory; returns its path."""
    tree = "/dev/shm/papers-files"
    trees.write_files(tree, files)
    sh("tar", "-C", os.path.dirname(tree), "-cf", tree + ".tar", os.path.basename(tree), timeout=600)
    sh("rm", "-r", tree)
    return tree + ".tar"


def write_sources(directory, count):
    """Writes a program of `count` sources and its makefile."""
    names = ["part%d" % i for i in range(count)]
    for i, name in enumerate(names):
        with open(os.path.join(directory, name + ".c"), "w") as f:
            f.write("#include <stdio.h>\nint %s(int x) { printf(\"%%d\\n\", x); return x + %d; }\n" % (name, i))
    with open(os.path.join(directory, "main.c"), "w") as f:
        f.write("".join("int %s(int);\n" % name for name in names))
        f.write("int main(void) { return %s ? 0 : 1; }\n" % " + ".join("%s(1)" % name for name in names))
    with open(os.path.join(directory, "Makefile"), "w") as f:
        f.write("program: main.o %s\n\tcc -o $@ $^\n%%.o: %%.c\n\tcc -O1 -c -o $@ $<\n" % " ".join(n + ".o" for n in names))


def on_mounts(sizes):
    """The works on mounts."""
    directories = Directories()
    tar = tar_of(sizes.files)
    with contextlib.closing(Grounds(delay_ms=DELAY_MS)) as grounds:
        gated = (binary("salius-run"), "--")
        sync = grounds.mount(SYNC)
        eager = grounds.mount(EXTERNAL, "commit=external", gated)
        triggered = grounds.mount(TRIGGERED, "commit=external,trigger=output", gated)
        ordered = grounds.mount(ORDERED, "commit=ordered")
        ignored = grounds.mount(IGNORED, words=eatmydata())

        def sqlite(ground):
            return ground.run(["sqlite", directories(ground), sizes.transactions, sizes.transactions])

        def append(ground):
            return ground.run(["append", directories(ground), sizes.records, 512])

        def mail(ground):
            return postmark(ground, directories(ground), sizes.postmark)

        def untar(ground):
            return ground.run("tar -xf %s" % shlex.quote(tar), cwd=directories(ground), shell=True)

        def of(work, *chosen):
            return {ground.name: (lambda ground=ground: work(ground)) for ground in chosen}
        ignores = [Bar("external / durability ignored", "at most", 1.15, ratio(TRIGGERED, IGNORED))]
        both = [*ignores, Bar("ordered / durability ignored", "at most", 1.15, ratio(ORDERED, IGNORED))]
        works = [
            Work("SQLite, %d transactions, one line" % sizes.transactions, of(sqlite, sync, eager, triggered),
                 [Bar("sync / external", "at least", 20, ratio(SYNC, TRIGGERED))]),
            Work("append and fsync %d times, one line" % sizes.records, of(append, eager, triggered, ignored), ignores),
            Work("PostMark, %d files" % sizes.postmark, of(mail, sync, eager, triggered, ordered, ignored), both),
            Work("untar of %d files" % sizes.files, of(untar, sync, eager, triggered, ordered, ignored), both),
        ]
        for work in works:
            work.measure(sizes.rounds)
    os.unlink(tar)
    return works


def on_direct(sizes):
    """The works on a direct volume, beside the bare file system without any sync."""
    directories = Directories()
    with contextlib.closing(Grounds()) as grounds:
        direct = grounds.direct(DIRECT, "--commit=external", "--trigger=output")
        bare = grounds.bare(BARE, eatmydata())

        def sqlite(ground):
            return ground.run(["sqlite", directories(ground), sizes.wal, LINE_EVERY])

        def commits(ground):
            directory = directories(ground)
            return ground.run("git init -q . && i=0; while [ $i -lt %d ]; do echo $i > file$((i %% 10)) && git add . && "
                              "git -c user.name=p -c user.email=p@localhost commit -q -m $i || exit; i=$((i + 1)); done" %
                              sizes.commits, cwd=directory, shell=True)

        def build(ground):
            directory = directories(ground)
            write_sources(directory, sizes.sources)
            return ground.run("make -s", cwd=directory, shell=True)

        def of(work):
            return {ground.name: (lambda ground=ground: work(ground)) for ground in (direct, bare)}
        works = [
            Work("SQLite WAL, %d transactions, a line every %d" % (sizes.wal, LINE_EVERY), of(sqlite),
                 [Bar("rate of no sync's", "at least", 0.6, ratio(BARE, DIRECT))]),
            Work("git commit, %d times" % sizes.commits, of(commits), [Bar("time of no sync's", "at most", 1.08, ratio(DIRECT, BARE))]),
            Work("build of %d sources" % sizes.sources, of(build), [Bar("time of no sync's", "at most", 1.08, ratio(DIRECT, BARE))]),
        ]
        for work in works:
            work.measure(sizes.rounds)
    return works


def count_each_datagram(grounds):
    """Has the primary's kernel cut a run of datagrams before it counts them: each has headers."""
    sh("ip", "-n", grounds.replicas.network.primary, "link", "set", "eth0", "gso_max_segs", "1")


def sent(grounds):
    """Returns the bytes that the primary has sent, headers of Ethernet, IP and UDP included."""
    shown = json.loads(sh("ip", "-n", grounds.replicas.network.primary, "-s", "-j", "link", "show", "eth0").stdout)
    return shown[0]["stats64"]["tx"]["bytes"]


def on_the_wire(sizes):
    """Bytes on the wire, for each replica, per byte written. The bars judge this in place of
    seconds."""
    works = []
    for mtu in (1500, 9000):
        with contextlib.closing(Grounds(mtu=mtu)) as grounds:
            count_each_datagram(grounds)
            ground = grounds.mount("MTU %d" % mtu, "commit=external,trigger=output", (binary("salius-run"), "--"))
            directories = Directories()
            for size, limit in ((4096, 1.05), (128, 1.35)):
                records = sizes.wire_bytes // size // (1 if size == 4096 else 8)
                before = sent(grounds)
                ground.run(["append", directories(ground), records, size])
                each = (sent(grounds) - before) / grounds.replicas.network.count / (records * size)
                works.append(Work("append of %d B, MTU %d" % (size, mtu), {},
                                  [Bar("bytes on the wire per byte written", "at most", limit, lambda _, each=each: each)]))
    return works


def measure(sizes):
    return [*on_mounts(sizes), *on_the_wire(sizes)], [], True


class Direct:
    """The part that needs no mount."""

    TITLE = TITLE + ", direct volumes"
    Sizes = Sizes

    @staticmethod
    def measure(sizes):
        return on_direct(sizes), [], True

"""salius-recover killed at every system call that changes a file or sends a message, and run again
(I7).

Every case starts with the same crashed disk and the same memory of the replicas. After the kill
half of the cases also lose the data that recovery had not synced (a power cut). The second run must
end well, and leave the tree that an undisturbed recovery leaves, byte for byte."""
import collections

from crash import lanes, scene
from crash.kill_at import KILLED, KillAt, kinds
from crash.site import Site
from harness import ops
from harness.case import Case
from harness.run import HarnessError, binary, sh
from harness.volume import ON_ANOTHER_HOST, RECOVER_NOT_ENOUGH, in_netns

# Runs for one message. If all the counted runs had that many messages, one run must reach it;
# beyond that number the ordinary run tries fewer.
TRIES, TRIES_SHORT = 20, 4
COUNTED = {"files": 2, "messages": 8}  # runs


class RecoverKilled(Case):

    LANES = 2
    SHARE = 1  # of the cases, in an ordinary run
    REPLAYED = ("replicated", "local")  # the modes whose records recovery replays

    def new_site(self):
        return Site()

    def change_names(self, site):
        scene.name_changes(site)

    def check_names(self, site):
        scene.check_name_changes(site.backing)

    def tree(self, site):
        return scene.tree(site.backing)

    def crashed(self, mode="replicated"):
        """Returns sites. Sets self.disk and self.memory of a volume whose primary died in `mode`,
        and self.want, the result of recovery."""
        sites = [self.own(self.new_site()) for _ in range(self.LANES)]
        site = sites[0]
        site.mount(mode="replicated")
        writer = ops.OpWriter(site.path, style=site.style, gated=True, wrapper=site.wrapper)
        self.addCleanup(writer.kill)
        writer.do(20)
        if mode == "local":
            for i in range(site.m):
                site.net.drop(i)
            site.mount_.wait_mode("local")
        self.change_names(site)
        if mode == "local":
            writer.do(8)
        else:
            site.write_to_replicas_alone(lambda: writer.do(8))
        site.power_cut(also=writer.kill)
        for i in range(site.m):
            site.net.heal(i)
        site.image.umount()
        for replica in site.replicas:
            replica.kill()
        self.disk, self.memory = site.keep_disk(), site.keep_memory()
        counted = self.undisturbed(site)
        ops.check(site.backing, writer.ledger, site.style, torn=site.direct)
        self.check_names(site)
        self.want = self.tree(site)
        return sites, counted

    def undisturbed(self, site):
        """Returns the points of some runs, fewest first: {"files": […], "messages": […]}."""
        counted = {"files": [], "messages": []}
        for only in [only for only, runs in COUNTED.items() for _ in range(runs)]:
            self.put(site)
            tool = KillAt(only=only)
            done = self.recover(site, tool.argv)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            counted[only].append(tool.points())
            tool.close()
        return {only: sorted(runs, key=len) for only, runs in counted.items()}

    def put(self, site):
        site.put_disk(self.disk)
        site.put_memory(self.memory)

    @staticmethod
    def recover(site, tool):
        return sh(*in_netns(site.volume.netns), *ON_ANOTHER_HOST, *tool, binary("salius-recover"), site.backing, check=False)

    def killed(self, site, only, at, after, power_cut):
        """Runs from the start up to the kill. Returns whether it reached that point, and how many
        points the run had."""
        self.put(site)
        tool = KillAt(at, after, only=only)
        done = self.recover(site, tool.argv)
        if done.returncode not in (0, KILLED):
            raise HarnessError("exit %d instead of the kill\n%s%s" % (done.returncode, done.stdout, done.stderr))
        points = len(tool.points())
        tool.close()
        if power_cut:
            site.image.power_cut()
        if done.returncode == 0 and points >= at:
            raise AssertionError("it was not killed at its point")
        return done.returncode == KILLED, points

    def test_killed_at_every_point_and_run_again_it_comes_to_the_same_result(self):
        for mode in ("replicated", "local") if self.long_run else ("replicated",):
            with self.subTest(mode=mode):
                self.every_point(mode)

    def every_point(self, mode):
        sites, counted = self.crashed(mode)
        for only, runs in counted.items():
            self.report("crashed in mode %s, %s: %d points (counted: %s): %s", mode, only, len(runs[-1]),
                        [len(run) for run in runs], kinds(runs[-1]))
        self.assertEqual(*counted["files"], "what recovery does to files is the same each time")
        sure = {only: len(runs[0]) for only, runs in counted.items()}
        # gRPC does not send equally often each time: add some numbers for runs that send more
        # often.
        numbers = {"files": range(1, sure["files"] + 1), "messages": range(1, len(counted["messages"][-1]) + 5)}
        items = [(only, at, after, (at + after) % 2 == 0)
                 for only in numbers for at in numbers[only] for after in (False, True)]
        if not self.long_run:
            items = self.rng.sample(items, int(len(items) * self.SHARE))
        else:
            items += [(only, at, after, not cut) for only, at, after, cut in items]

        def attempt(site, item):
            """Returns whether it was killed, how many points the run had, and whether the tree was
            not yet right."""
            killed, points = self.killed(site, *item)
            unfinished = self.tree(site) != self.want
            done = site.volume.recover(wrapper=ON_ANOTHER_HOST)
            if done.returncode != 0:
                raise AssertionError("the second run: exit %d\n%s%s" % (done.returncode, done.stdout, done.stderr))
            different = scene.difference(self.want, self.tree(site))
            if different:
                raise AssertionError("not the undisturbed result:\n" + different)
            return [killed, points, unfinished]

        def case(site, item):
            only, at = item[:2]
            tries = 1 if only == "files" else TRIES if at <= sure[only] else self.count(TRIES_SHORT, TRIES)
            return lanes.until_hit(lambda _: attempt(site, item), at, tries)

        cases = lanes.Cases(sites, items, case, None, self, mode)
        counts = collections.Counter()
        for (only, _, after, power_cut), (killed, _, unfinished) in cases.results.items():
            counts[only, ("after" if after else "before") if killed else "ended"] += 1
            counts["power cuts"] += power_cut
            counts["unfinished"] += unfinished
        for only in numbers:
            self.report("%s: killed %d times before and %d after a point; %d runs ended before theirs", only,
                        counts[only, "before"], counts[only, "after"], counts[only, "ended"])
        self.report("%d cases, %d power cuts after the kill; in %d the tree was not yet right", len(cases.results),
                    counts["power cuts"], counts["unfinished"])
        lost = lanes.not_hit(self, cases.results, sure)
        if cases.failures:
            self.fail(lanes.text(cases.failures))
        self.assertEqual(lost, [], "points that must be hit")
        if mode in self.REPLAYED:
            self.assertGreater(counts["unfinished"], 0, "no kill left anything to do: the cases prove nothing")
        else:
            self.assertEqual(counts["unfinished"], 0, "the disk lacked something")

    def test_control_second_run_without_replica_memory_is_refused_and_loses_data_when_forced(self):
        """The check sees lost data: before its decision is on the disk, recovery depends on the
        replicas."""
        sites, counted = self.crashed()
        site = sites[0]
        pinned = next(n for n, line in enumerate(counted["files"][0], 1) if line.endswith("/stable.log"))
        self.assertTrue(self.killed(site, "files", pinned, False, True)[0])
        for replica in site.replicas:
            replica.reboot()
        done = site.volume.recover("--timeout", "1s")
        self.assertEqual(done.returncode, RECOVER_NOT_ENOUGH, done.stdout + done.stderr)
        done = site.volume.recover("--timeout", "1s", "--force")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lost = scene.difference(self.want, self.tree(site))
        self.assertTrue(lost, "nothing was lost with the replicas: the test proves nothing")
        self.report("seen: %s", lost.splitlines()[0])


class DirectRecoverKilled(RecoverKilled):
    """The same of a direct volume. It has no log of its own, and sets no times. An ordinary run has
    a quarter of the cases."""

    SHARE = 0.25
    REPLAYED = ("replicated",)  # in mode local everything acknowledged is on the disk

    def new_site(self):
        return Site(direct=True)

    def change_names(self, site):
        """Its names are the local file system's."""

    def check_names(self, site):
        """See change_names()."""

    def tree(self, site):
        return scene.tree(site.backing, times=False)

"""salius-recover killed at every system call that changes a file or sends a message, and run again (I7).

The same crashed disk and the same memory of the replicas every time. After the kill half of the cases lose what
recovery itself had not synced (a power cut). The second run must end well, and leave the tree that an undisturbed
recovery leaves, byte for byte."""
from crash import lanes, scene
from crash.kill_at import KILLED, KillAt, kinds
from crash.site import Site
from harness import ops
from harness.case import Case
from harness.run import HarnessError, binary, sh
from harness.volume import RECOVER_NOT_ENOUGH, in_netns


class RecoverKilled(Case):

    LANES = 2

    def crashed(self):
        """Sites; self.disk and self.memory of a volume whose primary died; self.want, what recovery makes of it."""
        sites = [self.own(Site()) for _ in range(self.LANES)]
        site = sites[0]
        site.mount(mode="replicated")
        writer = ops.OpWriter(site.path)
        self.addCleanup(writer.kill)
        writer.more(16)
        scene.name_changes(site)
        writer.more(8)
        site.power_cut(also=writer.kill)
        site.image.umount()
        for replica in site.replicas:
            replica.kill()
        self.disk, self.memory = site.keep_disk(), site.keep_memory()
        points = self.undisturbed(site)
        ops.check(site.backing, writer.ledger)
        scene.check_name_changes(site.backing)
        self.want = scene.tree(site.backing)
        return sites, points

    def undisturbed(self, site):
        """Its points."""
        self.put(site)
        tool = KillAt()
        done = self.recover(site, tool.argv)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        points = tool.points()
        tool.close()
        return points

    def put(self, site):
        site.put_disk(self.disk)
        site.put_memory(self.memory)

    @staticmethod
    def recover(site, tool):
        return sh(*in_netns(site.volume.netns), *tool, binary("salius-recover"), site.backing, check=False)

    def killed(self, site, at, after, power_cut):
        """From the start, up to the kill. False when the run ended before that point."""
        self.put(site)
        tool = KillAt(at, after)
        done = self.recover(site, tool.argv)
        if done.returncode not in (0, KILLED):
            raise HarnessError("exit %d instead of the kill\n%s%s" % (done.returncode, done.stdout, done.stderr))
        tool.close()
        if power_cut:
            site.image.power_cut()
        return done.returncode == KILLED

    def test_killed_at_every_point_and_run_again_it_comes_to_the_same_result(self):
        sites, points = self.crashed()
        self.report("%d points: %s", len(points), kinds(points))
        # How often gRPC sends is not the same each time: some numbers more, for the runs that have more points.
        numbers = range(1, len(points) + 9)
        items = [(at, after, (at + after) % 2 == 0) for at in numbers for after in (False, True)]
        if self.long_run:
            items += [(at, after, not cut) for at, after, cut in items]
        counts = {"before": 0, "after": 0, "power cuts": 0, "unfinished": 0, "ended before": 0}
        beyond = set()

        def case(site, item):
            at, after, power_cut = item
            if not self.killed(site, *item):
                counts["ended before"] += 1
                beyond.add(at)
            else:
                counts["after" if after else "before"] += 1
            counts["power cuts"] += power_cut
            counts["unfinished"] += scene.tree(site.backing) != self.want
            done = site.volume.recover()
            if done.returncode != 0:
                raise AssertionError("the second run: exit %d\n%s%s" % (done.returncode, done.stdout, done.stderr))
            different = scene.difference(self.want, scene.tree(site.backing))
            if different:
                raise AssertionError("not the undisturbed result:\n" + different)

        cases = lanes.Cases(sites, items, case)
        self.report("killed before %d and after %d of them, %d power cuts after it; in %d the tree was not yet right; "
                    "%d runs ended before their point (from number %s on)", counts["before"], counts["after"],
                    counts["power cuts"], counts["unfinished"], counts["ended before"], min(beyond, default="-"))
        if cases.failures:
            self.fail(lanes.text(cases.failures))
        self.assertGreaterEqual(min(counts["before"], counts["after"]), len(points) - 9)
        self.assertGreater(counts["unfinished"], 0, "no kill left anything to do: the cases prove nothing")

    def test_control_without_the_replicas_memory_the_second_run_is_refused_and_forced_it_loses_data(self):
        """The check sees lost data: before its decision is on the disk, recovery lives off the replicas."""
        sites, points = self.crashed()
        site = sites[0]
        pinned = next(n for n, line in enumerate(points, 1) if line.endswith("/stable.log"))
        self.assertTrue(self.killed(site, pinned - 3, False, True))
        for replica in site.replicas:
            replica.reboot()
        done = site.volume.recover("--timeout", "1")
        self.assertEqual(done.returncode, RECOVER_NOT_ENOUGH, done.stdout + done.stderr)
        done = site.volume.recover("--timeout", "1", "--force")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lost = scene.difference(self.want, scene.tree(site.backing))
        self.assertTrue(lost, "nothing was lost with the replicas: the test proves nothing")
        self.report("seen: %s", lost.splitlines()[0])

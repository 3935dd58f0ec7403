"""The life of the mount daemon: killed alone, ended in order, unmounted, started by mount(8)."""
import itertools
import os
import sys
import threading

from harness import ops, sbin
from harness.case import Case
from harness.image import mounts
from harness.proc import Proc, attach_strace
from harness.rig import PATIENT, SMALL_LOG
from harness.run import binary, current, scratch, sh, wait_until
from harness.volume import DaemonMount, MountRefused, in_netns


class OnlyTheDaemonDies(Case):

    def test_killed_daemon_loses_nothing_and_the_next_mount_recovers_automatically(self):
        rig = self.rig(m=2, acks=1)
        rounds, last, ledger = self.count(4, 20), 0, None
        for _ in range(rounds):
            rig.mount("recover=auto", mode="replicated")
            if ledger:
                last = ops.check(rig.path, ledger)
            writer = ops.OpWriter(rig.path, ledger, last + 1)
            ledger = writer.ledger
            self.addCleanup(writer.kill)
            writer.more(self.rng.randint(5, 80))
            rig.mount_.proc.kill()
            # The next mount removes the dead one, whose root's attributes the kernel may know.
            writer.kill()
        mount = rig.mount("recover=auto")
        with open("/proc/self/mountinfo") as f:
            self.assertEqual(sum(line.split()[4] == rig.path for line in f), 1)
        ops.check(rig.path, ledger)
        mount.umount()
        self.report("%d kills of the daemon, %d operations acknowledged", rounds, ledger.total())

    def test_killed_daemon_needs_no_replica_because_the_page_cache_is_intact(self):
        """Same boot id, same mount of the backing file system: acknowledged data is in the log
        or the cache. Replicas that keep their memory are asked only for records that were not
        applied."""
        rig = self.rig(m=2, acks=1)
        rig.mount(mode="replicated")
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(50)
        rig.mount_.proc.kill()
        writer.kill()
        rig.mount_._detach()
        code, report = rig.volume.recover_json()
        self.assertEqual((code, report["outcome"], report["same_life"]), (0, "recovered", True), report)
        ops.check(rig.backing, writer.ledger)

    def test_malloc_keeps_no_more_arenas_than_there_are_cpus(self):
        """Each arena keeps as much as the fullest log took of it."""
        rig = self.rig(m=2, acks=1)
        pid = rig.mount(mode="replicated").pid

        def write(name):
            fd = os.open(rig.file(name), os.O_WRONLY | os.O_CREAT | os.O_SYNC, 0o600)
            for block in range(50):
                os.pwrite(fd, b"x" * 4096, block * 4096)
            os.close(fd)
        writers = [threading.Thread(target=write, args=("w%d" % n,)) for n in range(16)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        # By each arena except the first, which is the heap; only its beginning is usable.
        reserved = 64 << 20
        with open("/proc/%d/maps" % pid) as f:
            maps = [line.split() for line in f]
        spans = [[int(at, 16) for at in line[0].split("-")] for line in maps]
        arenas = sum(
            first[1] == rest[0] and first[0] % reserved == 0 and rest[1] == first[0] + reserved and
            (line[1], below[1]) == ("rw-p", "---p")
            for (first, line), (rest, below) in itertools.pairwise(zip(spans, maps)))
        self.assertLess(arenas, len(os.sched_getaffinity(0)), "\n".join(map(" ".join, maps)))

    def test_file_size_limit_of_the_daemons_shell_does_not_bind_its_callers(self):
        rig = self.rig(m=2, acks=1)
        limited = ["prlimit", "--fsize=%d:unlimited" % (32 << 20)]
        for_good = ["prlimit", "--fsize=%d" % (32 << 20), "setpriv", "--bounding-set=-sys_resource"]
        with self.assertRaises(MountRefused) as caught:
            rig.mount(wrapper=for_good)
        self.assertIn("ulimit -f", caught.exception.log)
        rig.mount(mode="replicated", wrapper=limited)

        def far(path, flags):
            fd = os.open(path, flags | os.O_CREAT, 0o600)
            try:
                return os.pread(fd, 4, 64 << 20) if flags == os.O_RDONLY else os.pwrite(fd, b"here", 64 << 20)
            finally:
                os.close(fd)
        far(rig.file("applied"), os.O_RDWR | os.O_SYNC)
        os.stat(rig.file("applied"))  # waits for the write above
        far(rig.file("replayed"), os.O_RDWR | os.O_SYNC)
        rig.power_cut()
        def recover(wrapper):
            return sh(*in_netns(rig.volume.netns), *wrapper, binary("salius-recover"), rig.backing, check=False)
        refused = recover(for_good)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("ulimit -f", refused.stderr)
        done = recover(limited)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for name in ("applied", "replayed"):
            self.assertEqual(far(rig.backing_file(name), os.O_RDONLY), b"here", name)

    def test_callers_get_errors_not_silence_when_the_daemon_dies(self):
        rig = self.rig(m=2, acks=1)
        rig.mount(mode="replicated")
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(10)
        rig.mount_.proc.kill()
        self.assertIn(writer.wait_failed(), ("ENOTCONN", "ECONNABORTED", "EIO"))

    def test_sigterm_always_ends_the_daemon_in_order(self):
        rig = self.rig(m=2, acks=1)
        mount = rig.mount(mode="replicated")
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(20)
        self.assertEqual(mount.proc.terminate(60), 0, rig.volume.tail())
        writer.kill()
        self.assertNotIn(rig.path, mounts())
        ops.check(rig.backing, writer.ledger)

    def test_busy_daemon_that_gets_sigterm_never_waits_for_itself(self):
        """Before it ends, the daemon has shared maps written back through its own mount. A thread
        of its own that waited for its own answer could not be killed, so another process asks the
        kernel for it."""
        rig = self.rig(m=1, acks=1)
        mount = rig.mount(mode="replicated")
        writer = Proc([sys.executable, "-c", """
import mmap, os, sys
fd = os.open(sys.argv[1] + "/mapped", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 1 << 20)
shared = mmap.mmap(fd, 1 << 20)
for page in range(0, 1 << 20, 4096):
    shared[page] = 1
print("dirty", flush=True)
sys.stdin.readline()
""", rig.path], rig.volume.log, pipe_in=True, pipe_out=True)
        self.addCleanup(writer.kill)
        self.assertEqual(writer.popen.stdout.readline(), "dirty\n")
        calls = os.path.join(current().dir, "calls")
        threads = set(os.listdir("/proc/%d/task" % mount.pid))
        tracer = attach_strace(mount.pid, "syncfs", calls)
        self.addCleanup(tracer.kill)
        self.assertEqual(mount.proc.terminate(60), 0, rig.volume.tail())
        tracer.wait(30)
        with open(calls) as f:
            callers = [line.split()[0] for line in f if "syncfs(" in line and "<%s>" % rig.path in line]
        self.assertEqual(len(callers), 1, "one syncfs of the mount")
        self.assertNotIn(callers[0], threads)
        with open(rig.backing_file("mapped"), "rb") as f:
            self.assertEqual(f.read().count(b"\1"), 256)


class Log(Case):

    def unread(self):
        """Returns a wrapper that runs a program with a FIFO without a reader as its stderr, and a
        function that fills the FIFO."""
        fifo = scratch("stderr")
        os.mkfifo(fifo)
        ends = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        self.addCleanup(os.close, ends)

        def fill():
            for size in (4096, 1):
                try:
                    while True:
                        os.write(ends, b"." * size)
                except BlockingIOError:
                    pass
        return ["sh", "-c", 'exec "$@" 2>"$0"', fifo], fill

    def test_blocked_log_stops_nothing(self):
        rig = self.rig(m=1, acks=1)
        wrapper, fill = self.unread()
        mount = rig.mount(mode="replicated", wrapper=wrapper)
        fill()

        def write(name):
            sh("dd", "if=/dev/zero", "of=" + rig.file(name), "bs=4k", "count=1", "oflag=sync", timeout=30)
        # A member is lost, the mode changes: logged with the pipeline's lock held.
        rig.replicas[0].kill()
        write("local")
        mount.wait_mode("local")
        rig.replicas[0].start()
        mount.wait_mode("replicated")
        write("replicated")
        mount.umount()
        rig.mount_ = None
        self.assertEqual(rig.volume.recover_json()[1]["outcome"], "clean")

    def test_blocked_log_of_a_replica_stops_nothing(self):
        rig = self.rig(m=1, acks=1, init_options=(*SMALL_LOG, "--tau", "1s"))
        replica = rig.replicas[0]
        replica.wrapper, fill = self.unread()
        replica.restart()
        mount = rig.mount(mode="replicated")
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(20)
        fill()
        mount.stop()  # its records grow too old: logged by the receiving thread
        wait_until(lambda: replica.metrics()["salius_replica_overdue_volumes"] == 1, 30, "nothing is overdue")
        received = replica.metrics()["salius_replica_records_total"]
        mount.cont()
        wait_until(lambda: replica.metrics()["salius_replica_records_total"] > received, 30, "nothing is received")
        mount.wait_mode("replicated")
        writer.more(20)
        rig.power_cut(also=writer.kill)
        code, report = rig.volume.recover_json()  # a replica that answers the fence logs
        self.assertEqual((code, report["outcome"]), (0, "recovered"), report)
        ops.check(rig.backing, writer.ledger)
        self.assertEqual(replica.terminate(), 0)
        replica.start()
        rig.mount(mode="replicated").umount()
        rig.mount_ = None

    def test_a_log_in_the_mount_itself_is_refused(self):
        rig = self.rig(m=1, acks=1)
        link, loose = scratch("link"), scratch("loose")
        os.symlink(rig.path, link)
        os.symlink(os.path.join(link, "not", "yet"), loose)
        for log in (rig.file("log"), rig.path + "/new/log", os.path.join(link, "log"), loose):
            done = sh(*in_netns(rig.net.primary), binary("salius-mount"), rig.backing, rig.path, "-o",
                      "insecure,log=" + log, check=False)
            self.assertEqual(done.returncode, 1, log)
            self.assertIn("would lie in the mount itself", done.stderr)
            self.assertNotIn(rig.path, mounts())
        # The default log's directory is refused too. A mount namespace of its own hides the mount
        # from others.
        done = sh(*in_netns(rig.net.primary), "unshare", "--mount", binary("salius-mount"), rig.backing, "/var/log",
                  "-o", "insecure", check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("would lie in the mount itself", done.stderr)

    def test_foreign_file_in_place_of_the_log_is_refused(self):
        rig = self.rig(m=1, acks=1)
        log = "/var/log/salius/%s.log" % rig.volume.uuid()
        for plant in ("mkfifo %s", "touch /var/log/a; ln /var/log/a %s", "touch %s; chown 1 %s", "ln -s /var/log/a %s"):
            done = sh(*in_netns(rig.net.primary), "unshare", "--mount", "sh", "-c",
                      "mount -t tmpfs none /var/log && mkdir /var/log/salius && %s && exec \"$@\"" % plant.replace("%s", log),
                      "sh", binary("salius-mount"), rig.backing, rig.path, "-o", "insecure", check=False)
            self.assertNotEqual(done.returncode, 0, plant + done.stderr)
            self.assertIn(log, done.stderr.splitlines()[-1])


class Umount(Case):

    def test_after_umount_every_replica_may_be_destroyed_and_the_power_cut(self):
        rig = self.rig(m=2, acks=1)
        mount = rig.mount(mode="replicated")
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(100)
        writer.kill()
        mount.umount()
        rig.mount_ = None
        for replica in rig.replicas:
            replica.lose_memory()
        rig.image.power_cut()
        code, report = rig.volume.recover_json()
        self.assertEqual((code, report["outcome"]), (0, "clean"), report)
        ops.check(rig.backing, writer.ledger)
        leftovers = [n for d in ("open", "tmp") for n in os.listdir(rig.volume.salius_file(d))]
        self.assertEqual(leftovers, [])
        rig.image.check()

    def test_umount_waits_for_unsynced_data_too(self):
        rig = self.rig(m=2, acks=1)
        mount = rig.mount(mode="replicated")
        data = os.urandom(3 << 20)
        with open(rig.file("unsynced"), "wb") as f:
            f.write(data)
        mount.umount()
        rig.mount_ = None
        for replica in rig.replicas:
            replica.lose_memory()
        rig.image.power_cut()
        with open(rig.backing_file("unsynced"), "rb") as f:
            self.assertEqual(f.read(), data)

    def test_umount_with_every_replica_gone_still_ends_and_is_clean(self):
        rig = self.rig(m=2, acks=1)
        mount = rig.mount(mode="replicated")
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(50)
        writer.kill()
        for replica in rig.replicas:
            replica.lose_memory()
        mount.umount()
        rig.mount_ = None
        rig.image.power_cut()
        self.assertEqual(rig.volume.recover().returncode, 0)
        ops.check(rig.backing, writer.ledger)

    def test_umount_of_a_busy_mount_is_refused_and_nothing_breaks(self):
        rig = self.rig(m=2, acks=1, init_options=PATIENT)
        mount = rig.mount(mode="replicated")
        with open(rig.file("busy"), "w"):
            self.assertNotEqual(sh("umount", rig.path, check=False).returncode, 0)
        self.assertEqual(mount.mode(), "replicated")

    def test_sigterm_after_umount_l_leaves_the_new_mount_there(self):
        rig = self.rig(m=2, acks=1)
        mount = rig.mount(mode="replicated")
        fd = os.open(rig.file("open"), os.O_RDWR | os.O_CREAT | os.O_SYNC)
        try:
            sh("umount", "-l", rig.path)
            sh("mount", "-t", "tmpfs", "another", rig.path)
            self.addCleanup(lambda: rig.path in mounts() and sh("umount", rig.path))
            os.pwrite(fd, b"still ours", 0)
            self.assertEqual(mount.proc.terminate(60), 0, rig.volume.tail())
            self.assertEqual(mounts().get(rig.path, ("", ""))[:2], ("tmpfs", "another"))
            with self.assertRaises(OSError):
                os.pwrite(fd, b"nobody's", 0)
        finally:
            try:
                os.close(fd)
            except OSError:
                pass  # ENOTCONN
        with open(rig.backing_file("open"), "rb") as f:
            self.assertEqual(f.read(), b"still ours")
        self.assertEqual(rig.volume.recover_json()[1]["outcome"], "clean")


class MountProgram(Case):
    """mount -t salius, as in fstab."""

    def setUp(self):
        super().setUp()
        sbin.put("mount.salius", binary("salius-mount"))
        self.addCleanup(sbin.remove, "mount.salius")

    def test_mount_t_salius_returns_when_the_mount_answers(self):
        rig = self.rig(m=2, acks=1)
        options = "insecure,log=%s,replicas=%s,acks=1" % (rig.volume.log, ";".join(r.address for r in rig.replicas))
        mount = self.own(DaemonMount(rig.volume, ["mount", "-t", "salius", rig.backing, rig.path, "-o", options]))
        mount.wait_mode("replicated")
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(20)
        writer.kill()
        mount.umount()
        ops.check(rig.backing, writer.ledger)

    def test_mount_by_an_fstab_line(self):
        rig = self.rig(m=1, acks=1)
        fstab = os.path.join(os.path.dirname(rig.path), "fstab")
        with open(fstab, "w") as f:
            f.write("%s %s salius _netdev,noauto,x-systemd.requires=network-online.target,insecure,log=%s,rw 0 0\n" % (
                rig.backing, rig.path, rig.volume.log))
        mount = self.own(DaemonMount(rig.volume, ["mount", "-T", fstab, rig.path]))
        mount.wait_mode("replicated")
        mount.umount()

    def test_mount_without_a_volume_fails_with_the_reason(self):
        rig = self.rig(m=1, acks=1)
        empty = os.path.join(rig.image.path, "empty")
        os.mkdir(empty)
        done = sh(*in_netns(rig.net.primary), "mount", "-t", "salius", empty, rig.path, "-o", "insecure", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("salius init", done.stderr)
        self.assertNotIn(rig.path, mounts())


class Clock(Case):

    def test_clock_set_back_an_hour_while_mounted_changes_nothing(self):
        """libfaketime runs the daemon with a clock file that the test changes. Order is (epoch,
        seq), intervals are monotonic: no stall, no partition, no reordering."""
        library = next((os.path.join(d, "libfaketime.so.1") for d in (
            "/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime")
            if os.path.exists(os.path.join(d, "libfaketime.so.1"))), None)
        self.assertTrue(library, "libfaketime is not installed: deploy/packages.sh")
        rig = self.rig(m=2, acks=1, init_options=PATIENT)
        clock = os.path.join(current().dir, "clock")

        def set_clock(text):
            with open(clock + ".new", "w") as f:
                f.write(text + "\n")
            os.rename(clock + ".new", clock)
        set_clock("+0")
        env = dict(os.environ, LD_PRELOAD=library, FAKETIME_TIMESTAMP_FILE=clock, FAKETIME_NO_CACHE="1",
                   FAKETIME_DONT_FAKE_MONOTONIC="1")
        mount = rig.mount(mode="replicated", env=env)
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(50)
        set_clock("-1h")
        writer.more(50)
        self.assertEqual(mount.mode(), "replicated")
        rig.power_cut(also=writer.kill)
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        last = ops.check(rig.backing, writer.ledger)
        # The next session begins with a clock that is still behind.
        rig.mount(mode="replicated", env=env)
        again = ops.OpWriter(rig.path, writer.ledger, last + 1)
        self.addCleanup(again.kill)
        again.more(50)
        rig.power_cut(also=again.kill)
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)

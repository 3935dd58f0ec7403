"""commit=external: a gated process's sync returns early, and every other process that looks waits
until what it would see is durable. The replicas are silent meanwhile."""
import errno
import mmap
import os
import signal
import sqlite3
import sys
import time

from harness.case import Case
from harness.gate import Agent
from harness.rig import SMALL_LOG
from harness.run import current, sh, wait_until

# A silent replica is waited for, and the disk not asked to help, for five seconds: a quarter of it.
SILENT_FOR_LONG = (*SMALL_LOG, "--delta", "20s")
# A call that waits for nothing; far less than what makes records durable without replicas.
AT_ONCE_S = 2
LOOKS = 20  # of the status, while nothing may become visible


class External(Case):

    def external(self, options="", **kwargs):
        rig = self.rig(m=2, acks=2, size_mb=256, init_options=SILENT_FOR_LONG, **kwargs)
        rig.mount("commit=external" + options, mode="replicated")
        return rig

    def agent(self, name):
        return self.own(Agent(os.path.join(current().dir, "%s-%s.log" % (self._testMethodName, name))))

    def insider(self, rig, name="insider"):
        agent = self.agent(name)
        agent.ask("files.update(root=os.open(%r, os.O_RDONLY | os.O_DIRECTORY))" % rig.path)
        agent.ask("files.update(gate=Gate(socket_of(files['root'])))")
        return agent

    def opened(self, agent, rig, name, flags="os.O_RDWR | os.O_CREAT"):
        """Opens a file with early return, known to the agent as files[name]."""
        agent.ask("files.update({%r: os.open(%r, %s)})" % (name, rig.file(name), flags))
        agent.ask("early(files[%r])" % name)

    def silence(self, rig):
        """Makes everything so far durable, then stops the replicas."""
        rig.mount_.wait_status(lambda s: s["durable"] == s["issued"], 30, "all durable")
        for replica in rig.replicas:
            replica.proc.stop()
        self.addCleanup(self.sound, rig)

    @staticmethod
    def sound(rig):
        for replica in rig.replicas:
            replica.proc.cont()

    def at_once(self, agent, expression):
        begin = time.monotonic()
        value = agent.ask(expression)
        self.assertLess(time.monotonic() - begin, AT_ONCE_S, expression)
        return value

    def assert_waiting(self, rig, agents):
        """Checks that none of these has an answer while records are not durable. On a busy machine
        the disk may make them durable before the last look."""
        for look in range(LOOKS):
            answered = [name for name, agent in agents.items() if agent.done()]
            status = rig.mount_.status()
            if look > 0 and status["durable"] == status["issued"]:
                break
            self.assertLess(status["durable"], status["issued"], "the replicas were to be silent")
            self.assertEqual(answered, [])

    def test_every_look_from_outside_waits_for_the_new_state(self):
        rig = self.external()
        insider = self.insider(rig)
        self.opened(insider, rig, "f")
        insider.ask("os.write(files['f'], b'old')")
        insider.ask("os.fsync(files['f'])")
        by_descriptor = {
            "fstat": ("os.fstat(files['f']).st_size", 5),
            "read": ("os.pread(files['f'], 100, 0)", "newer"),
            "preadv": ("(lambda to: os.preadv(files['f'], [to], 0) and bytes(to))(bytearray(5))", "newer"),
            "sendfile": ("(lambda to: os.sendfile(to, files['f'], 0, 5) and os.pread(to, 5, 0))(os.memfd_create('copy'))", "newer"),
            "splice": ("(lambda r, w: os.splice(files['f'], w, 5, 0) and os.read(r, 5))(*os.pipe())", "newer"),
            "seek to the end": ("os.lseek(files['f'], 0, os.SEEK_END)", 5),
            "seek to a hole": ("os.lseek(files['f'], 0, os.SEEK_HOLE)", 5),
        }
        held = {name: self.agent(name) for name in by_descriptor}
        for agent in held.values():  # files that were open before, and pages and attributes read
            agent.ask("files.update(f=os.open(%r, os.O_RDONLY))" % rig.file("f"))
            agent.ask("os.pread(files['f'], 100, 0)")
            agent.ask("os.fstat(files['f']).st_size")
        self.silence(rig)
        for change in ("os.pwrite(files['f'], b'newer', 0)", "os.symlink('f', %r)" % rig.file("link"),
                       "os.setxattr(files['f'], 'user.a', b'b')", "os.mkdir(%r)" % rig.file("dir"),
                       "os.fsync(files['f'])"):
            self.at_once(insider, change)
        # The insider sees all of it; the kernel has it in its cache, if anywhere.
        for look, seen in (("os.pread(files['f'], 100, 0)", "newer"), ("os.stat(%r).st_size" % rig.file("f"), 5),
                           ("os.readlink(%r)" % rig.file("link"), "f"), ("sorted(os.listdir(%r))" % rig.path,
                                                                         ["dir", "f", "link"]),
                           ("os.getxattr(files['f'], 'user.a')", "b")):
            self.assertEqual(self.at_once(insider, look), seen)
        looks = {
            **by_descriptor,
            "stat": ("os.stat(%r).st_size" % rig.file("f"), 5),
            "lookup": ("os.path.isdir(%r)" % rig.file("dir"), True),
            "readdir": ("sorted(os.listdir(%r))" % rig.path, ["dir", "f", "link"]),
            "readlink": ("os.readlink(%r)" % rig.file("link"), "f"),
            "getxattr": ("os.getxattr(%r, 'user.a')" % rig.file("f"), "b"),
            "listxattr": ("os.listxattr(%r)" % rig.file("f"), ["user.a"]),
            "access": ("os.access(%r, os.R_OK)" % rig.file("link"), True),
            "map": ("bytes(mmap.mmap(os.open(%r, os.O_RDONLY), 5, prot=mmap.PROT_READ))" % rig.file("f"), "newer"),
        }
        agents = {name: held.get(name) or self.agent(name) for name in looks}
        for name, (look, _) in looks.items():
            agents[name].start(look)
        self.assert_waiting(rig, agents)
        os.statvfs(rig.path)  # counts do not wait
        gate = rig.mount_.status()["gate"]
        self.assertEqual(gate["processes"], 1)
        self.assertLessEqual(gate["waiting_answers"], gate["waited_answers"])
        self.sound(rig)
        for name, (_, seen) in looks.items():
            self.assertEqual(agents[name].result(), seen, name)
        gate = rig.mount_.status()["gate"]
        self.assertEqual(gate["waiting_answers"], 0)
        # The kernel joins equal looks, and lets calls on one inode wait for each other.
        self.assertGreaterEqual(gate["waited_answers"], len(looks) - len(by_descriptor) + 1)

    def test_removal_is_not_seen_before_it_is_durable(self):
        rig = self.external()
        insider, outsider = self.insider(rig), self.agent("outsider")
        self.opened(insider, rig, "f")
        insider.ask("os.fsync(files['f'])")
        self.assertTrue(outsider.ask("os.path.exists(%r)" % rig.file("f")))
        self.silence(rig)
        self.at_once(insider, "os.unlink(%r)" % rig.file("f"))
        self.assertFalse(self.at_once(insider, "os.path.exists(%r)" % rig.file("f")))
        outsider.start("os.path.exists(%r)" % rig.file("f"))
        self.assert_waiting(rig, {"outsider": outsider})
        self.sound(rig)
        self.assertFalse(outsider.result())

    def test_only_registered_processes_get_early_return(self):
        rig = self.external()
        insider, outsider = self.insider(rig), self.agent("outsider")
        self.opened(insider, rig, "f")
        outsider.ask("files.update(f=os.open(%r, os.O_RDWR))" % rig.file("f"))
        with self.assertRaises(OSError) as refused:
            outsider.ask("early(files['f'])")
        self.assertEqual(refused.exception.errno, errno.EPERM)
        self.silence(rig)
        self.at_once(insider, "os.write(files['f'], b'x')")
        self.at_once(insider, "in_thread(lambda: os.fsync(files['f']))")
        outsider.start("os.fsync(files['f'])")
        self.assert_waiting(rig, {"outsider": outsider})
        self.sound(rig)
        outsider.result()

    def waits_for_sync(self, rig, agent, expression):
        """Checks that the expression, which ends in a sync, waits for the replicas."""
        self.silence(rig)
        agent.start(expression)
        self.assert_waiting_until_issued(rig, agent)
        self.sound(rig)
        return agent.result()

    def assert_waiting_until_issued(self, rig, agent):
        rig.mount_.wait_status(lambda s: s["issued"] > s["durable"], 20, "a record")
        self.assert_waiting(rig, {"agent": agent})

    def test_fork_exec_and_end_of_connection_end_early_return(self):
        rig = self.external()
        insider = self.insider(rig)
        for number, work in enumerate((
                # A child is outside until it registers. It takes the grant with it.
                "in_child(lambda: (os.write(files[{0!r}], b'x'), os.fsync(files[{0!r}])))",
                # The program that is started by exec has the files, and here even the connection.
                "os.set_inheritable(files['gate'].connection.fileno(), True), os.set_inheritable(files[{0!r}], True), "
                "os.spawnv(os.P_WAIT, {1!r}, ['python', '-c', 'import os; os.write(%d, b\"x\"); os.fsync(%d)' "
                "% (files[{0!r}], files[{0!r}])])",
                "(files['gate'].connection.close(), os.write(files[{0!r}], b'x'), os.fsync(files[{0!r}]))")):
            name = "f%d" % number
            self.opened(insider, rig, name)
            self.waits_for_sync(rig, insider, work.format(name, sys.executable))

    def test_exec_of_the_process_itself_ends_early_return(self):
        rig = self.external()
        insider = self.insider(rig)
        self.opened(insider, rig, "f")
        insider.ask("os.set_inheritable(files['f'], True)")
        insider.ask("os.set_inheritable(files['gate'].connection.fileno(), True)")
        self.waits_for_sync(rig, insider, "os.execv(%r, ['python', '-c', 'import os; os.write(%%d, b\"x\"); os.fsync(%%d);"
                            " print(\"[\\\\\"ok\\\\\", 1]\")' %% (files['f'], files['f'])])" % sys.executable)

    def test_number_of_a_dead_insider_says_nothing(self):
        rig = self.external()
        insider = self.insider(rig)
        number = insider.pid
        insider.close()
        agent = self.agent("next")
        for _ in range(100):
            if agent.pid == number:
                break
            agent.close()
            with open("/proc/sys/kernel/ns_last_pid", "w") as last:
                last.write(str(number - 1))
            agent = self.agent("next")
        self.assertEqual(agent.pid, number)
        agent.ask("files.update(f=os.open(%r, os.O_RDWR | os.O_CREAT))" % rig.file("f"))
        with self.assertRaises(OSError) as refused:
            agent.ask("early(files['f'])")
        self.assertEqual(refused.exception.errno, errno.EPERM)

    def test_given_back_and_o_sync_writes(self):
        rig = self.external()
        insider = self.insider(rig)
        self.opened(insider, rig, "f", "os.O_WRONLY | os.O_CREAT | os.O_SYNC")
        self.silence(rig)
        self.at_once(insider, "os.write(files['f'], b'x')")
        self.at_once(insider, "early(files['f'], False)")
        insider.start("os.write(files['f'], b'y')")
        self.assert_waiting(rig, {"insider": insider})
        self.sound(rig)
        self.assertEqual(insider.result(), 1)

    def test_writable_shared_map_ends_early_return(self):
        rig = self.external()
        insider = self.insider(rig)
        self.opened(insider, rig, "f")
        insider.ask("os.write(files['f'], bytes(4096))")
        insider.ask("files.update(map=mmap.mmap(files['f'], 4096))")
        insider.ask("files['map'].write(b'stored')")
        self.waits_for_sync(rig, insider, "os.fsync(files['f'])")
        outsider = self.agent("outsider")
        self.assertEqual(outsider.ask("os.pread(os.open(%r, os.O_RDONLY), 6, 0)" % rig.file("f")), "stored")

    def test_failed_volume_answers_eio(self):
        rig = self.external()
        insider, outsider = self.insider(rig), self.agent("outsider")
        self.opened(insider, rig, "f")
        self.silence(rig)
        self.at_once(insider, "os.write(files['f'], b'x')")
        self.at_once(insider, "os.fsync(files['f'])")
        outsider.start("os.stat(%r).st_size" % rig.file("f"))
        self.assert_waiting(rig, {"outsider": outsider})
        rig.image.shutdown()  # the stable log cannot help
        with self.assertRaises(OSError) as failed:
            outsider.result(60)
        self.assertEqual(failed.exception.errno, errno.EIO)
        self.assertEqual(insider.ask("files['gate'].marks()")[2], 1)
        with self.assertRaises(OSError) as failed:
            insider.ask("os.fsync(files['f'])")
        self.assertEqual(failed.exception.errno, errno.EIO)

    def test_records_are_sent_when_an_output_or_an_outsider_waits(self):
        rig = self.external(",trigger=output")
        insider, outsider = self.insider(rig), self.agent("outsider")
        self.opened(insider, rig, "f")
        for wait in (lambda: insider.ask("files['gate'].output_waits()"),
                     lambda: outsider.ask("os.stat(%r).st_size" % rig.file("f"))):
            rig.mount_.wait_status(lambda s: s["durable"] == s["issued"], 30, "all durable")
            begin = time.monotonic()
            insider.ask("os.write(files['f'], b'x')")
            insider.ask("os.fsync(files['f'])")
            while time.monotonic() - begin < AT_ONCE_S:
                status = rig.mount_.status()
                self.assertLess(status["durable"], status["issued"])
            wait()
            wait_until(lambda: insider.ask("files['gate'].marks()[0] == files['gate'].marks()[1]"), 20, "durable")
            self.assertLess(time.monotonic() - begin, 4, "not before the five seconds")

    def test_state_seen_from_outside_survives_a_power_cut(self):
        rig = self.rig(m=2, acks=2, size_mb=256)
        seen_last = 0
        for round_ in self.rounds("power cuts", self.count(3, 100), lambda: "nothing seen was lost"):
            rig.mount("commit=external,trigger=%s" % self.rng.choice(("eager", "output")), mode="replicated")
            insider, outsider = self.insider(rig, "i%d" % round_), self.agent("o%d" % round_)
            name = "f%d" % round_
            self.opened(insider, rig, name, "os.O_WRONLY | os.O_CREAT | os.O_APPEND")
            insider.start("[(os.write(files[%r], b'%%07d\\n' %% i), os.fsync(files[%r])) for i in range(10 ** 6)]"
                          % (name, name))
            looks = self.rng.randint(5, 300)
            seen = outsider.ask("max(len(open(%r, 'rb').read()) for _ in range(%d))" % (rig.file(name), looks), 60)
            rig.power_cut(shutdown_first=self.rng.random() < 0.5, also=insider.close)
            outsider.close()
            self.rng.choice(rig.replicas).restart()
            done = rig.volume.recover()
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(rig.backing_file(name), "rb") as f:
                kept = f.read()
            self.assertGreaterEqual(len(kept), seen)
            self.assertEqual(kept, b"".join(b"%07d\n" % i for i in range(len(kept) // 8)))
            seen_last += seen
        self.report("%d bytes seen from outside, all there", seen_last)
        self.assertGreater(seen_last, 0)

    def test_programs_outside_work_as_under_sync(self):
        rig = self.rig(m=2, acks=2, size_mb=256)
        rig.mount("commit=external", mode="replicated")
        with open(rig.file("p.c"), "w") as source:
            source.write("#include <stdio.h>\nint main(void) { return puts(\"works\") < 0; }\n")
        sh("gcc", "-o", rig.file("p"), rig.file("p.c"))
        self.assertEqual(sh(rig.file("p")).stdout, "works\n")
        table = sqlite3.connect(rig.file("table"))
        self.assertEqual(table.execute("PRAGMA journal_mode=WAL").fetchone(), ("wal",))  # maps its index
        table.execute("CREATE TABLE t (x)")
        for i in range(20):
            table.execute("INSERT INTO t VALUES (?)", (i,))
            table.commit()
        other = sqlite3.connect(rig.file("table"))
        self.assertEqual(other.execute("SELECT count(*) FROM t").fetchone(), (20,))
        other.close()
        table.close()
        sh("tar", "-C", rig.path, "-cf", rig.file("all.tar"), "p", "p.c")
        os.mkdir(rig.file("copy"))
        sh("tar", "-C", rig.file("copy"), "-xf", rig.file("all.tar"))
        sh("cmp", rig.file("p"), rig.file("copy/p"))
        with open(rig.file("mapped"), "wb+") as f:
            f.truncate(8192)
            with mmap.mmap(f.fileno(), 8192) as pages:
                pages[4096:4102] = b"stored"
                pages.flush()
            f.seek(4096)
            self.assertEqual(f.read(6), b"stored")
        rig.mount_.umount()
        self.assertEqual(sh(rig.backing_file("p")).stdout, "works\n")

    def test_daemon_that_ends_leaves_no_early_return(self):
        rig = self.external()
        insider = self.insider(rig)
        self.opened(insider, rig, "f")
        insider.ask("os.write(files['f'], b'x')")
        rig.mount_.proc.signal(signal.SIGKILL)
        wait_until(lambda: not rig.mount_.proc.alive(), 20, "the daemon lives")
        with self.assertRaises(OSError):
            insider.ask("os.fsync(files['f'])")
        with self.assertRaises(OSError):
            insider.ask("files['gate'].output_waits()")

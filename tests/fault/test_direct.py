"""Direct volumes: real programs under salius-run, real replicas, and faults."""
import contextlib
import errno
import json
import os
import signal
import sqlite3
import sys

from harness.direct import DirectCase
from harness.run import current, sh, wait_until

# Inserts one row a transaction, and prints its number when the commit has returned.
ROWS = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("pragma journal_mode = " + sys.argv[2])
db.execute("pragma synchronous = " + sys.argv[3])
db.execute("create table if not exists rows (n integer primary key)")
n = 0
while True:
    n += 1
    db.execute("insert into rows values (?)", (n,))
    print(n, flush=True)
"""

# Removes files and uses their names again at once. Prints how often an inode number was used again,
# and leaves one file with the bytes "new". The records of the removed files are still in the log.
NAMES = """
import os, sys
os.chdir(sys.argv[1])
def removed(path, number):
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_SYNC, 0o600)
    for offset in (0, 0, 4096, 0):  # the first is synced for real, the others are logged
        os.pwrite(fd, b"old" * 1000, offset)
    inode = os.fstat(fd).st_ino
    os.close(fd)
    if number % 4 == 0:
        os.unlink(path)
    elif number % 4 == 1:
        os.remove(os.path.join(".", path))
    elif number % 4 == 2:
        os.unlink(os.path.basename(path), dir_fd=os.open(os.path.dirname(path) or ".", os.O_RDONLY))
    else:
        fd = os.open("other", os.O_CREAT | os.O_RDWR, 0o600)
        os.close(fd)
        os.rename("other", path)
        os.unlink(path)
    return inode
again = 0
for number in range(40):
    os.mkdir("d")
    inside = removed("d/f", number)
    os.rmdir("d")
    inode = removed("f", number)
    fd = os.open("f", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    again += os.fstat(fd).st_ino in (inode, inside)
    os.write(fd, b"new")
    os.fsync(fd)
    os.pwrite(fd, b"NEW", 0)  # logged
    os.fsync(fd)
    os.close(fd)
    if number < 39:
        os.unlink("f")
print(again, flush=True)
sys.stdin.read(1)
"""

# Writes its n-th block of 6,000 bytes over the last one, and prints n when the write has returned.
BLOCKS = """
import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR | os.O_SYNC, 0o600)
n = 0
while True:
    n += 1
    os.pwrite(fd, b"%20d" % n * 300, 0)
    print(n, flush=True)
"""

# Changes files of which a recovery must not take the older records, in ways that a file's id cannot
# follow. It runs without the rights by which root reads every file.
UNIDENTIFIED = """
import os, subprocess, sys
volume, outside = sys.argv[1:]
def write(fd, text, times):
    for n in range(times):
        os.pwrite(fd, text * 1000, 0)
        os.fsync(fd)
def new(path, mode=0o600):
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
def python(text, *descriptors):
    subprocess.run([sys.executable, "-c", "import os, sys\\n" + text, *map(str, descriptors)], pass_fds=descriptors,
                   check=True)

# Its owner may neither read nor write it when another program gets the descriptor.
path = os.path.join(volume, "heir")
fd = new(path)
write(fd, b"older", 3)  # the first sync is real, the others are logged
os.fchmod(fd, 0)
try:
    os.open(path, os.O_RDONLY)
    sys.exit("root's rights are still there")
except PermissionError:
    pass
python("fd = int(sys.argv[1]); os.pwrite(fd, b'newer' * 1000, 0); os.fsync(fd)", fd)

# It gets its id from another process, since this one may not give it one.
path = os.path.join(volume, "readonly")
fd = new(path, 0o444)
write(fd, b"first", 1)
os.fchmod(fd, 0o644)
python("fd = os.open(%r, os.O_RDWR)\\nfor n in range(3): os.pwrite(fd, b'older' * 1000, 0); os.fsync(fd)" % path)
write(fd, b"newer", 1)

# A file outside gets the inode number of one that was removed.
again = 0
for number in range(40):
    fd = new(os.path.join(volume, "d", "gone"))
    write(fd, b"older", 3)
    inode = os.fstat(fd).st_ino
    os.close(fd)
    os.unlink(os.path.join(volume, "d", "gone"))
    fd = new(os.path.join(outside, "again%d" % number))
    again += os.fstat(fd).st_ino == inode
    write(fd, b"older", 2)
    write(fd, b"newer", 1)
    os.close(fd)
print(again, flush=True)
sys.stdin.read(1)
"""

STATIC = "int main(void) { return 0; }\n"


class DirectVolume(DirectCase):

    def test_acknowledged_writes_survive_power_cuts(self):
        for lose_replica in (False, True):
            proc, first = self.writer("f%d" % lose_replica)
            last = self.numbers(proc, 1500)[-1]
            last = self.cut(proc, lose_replica) or last
            with open(os.path.join(self.directory, "f%d" % lose_replica), "rb") as f:
                data = f.read()
            for slot in range(64):
                newest = last - (last - slot) % 64
                found = int(data[slot * 512:slot * 512 + 512] or b"0")
                # The one after the last may have been written and not acknowledged.
                self.assertIn(found, (newest, last + 1 if (last + 1) % 64 == slot else newest), "slot %d" % slot)
            self.report("%d writes acknowledged, all there%s", last, "; a member lost" if lose_replica else "")

    def test_sqlite_survives_power_cuts(self):
        # In mode delete the removal of the journal commits, and only "extra" syncs its directory.
        for journal, synchronous in (("wal", "full"), ("delete", "extra")):
            name = os.path.join(self.directory, journal + ".db")
            proc = self.start(sys.executable, "-c", ROWS, name, journal, synchronous)
            last = self.numbers(proc, 300)[-1]
            last = self.cut(proc, lose_replica=False) or last
            with contextlib.closing(sqlite3.connect(name)) as db:
                self.assertEqual(db.execute("pragma integrity_check").fetchone(), ("ok",))
                count, highest = db.execute("select count(*), max(n) from rows").fetchone()
            self.assertGreaterEqual(highest, last)
            self.assertEqual(count, highest)
            self.report("%s: %d rows acknowledged, all there", journal, last)

    def test_records_of_removed_files_stay_out_of_their_successors(self):
        for lose_replica in (False, True):
            folder = self.path("names%d" % lose_replica)
            os.mkdir(folder)
            proc = self.start(sys.executable, "-c", NAMES, folder, pipe_in=True)
            again = int(proc.popen.stdout.readline())
            self.assertGreater(again, 0)
            self.cut(proc, lose_replica)
            self.assertEqual(os.listdir(folder), ["f"])
            with open(os.path.join(folder, "f"), "rb") as f:
                self.assertEqual(f.read(), b"NEW")
            self.report("%d inode numbers used again; nothing old came back%s", again, "; a member lost" * lose_replica)

    def test_files_that_cannot_be_identified_keep_their_newest_bytes(self):
        for name in "de":
            os.mkdir(self.path(name))
        outside = os.path.join(self.rig_.image.path, "outside")
        os.rename(self.path("e"), outside)  # the file system takes inode numbers near those of d
        proc = self.start("setpriv", "--bounding-set=-dac_override,-dac_read_search", sys.executable, "-c", UNIDENTIFIED,
                          self.directory, outside, pipe_in=True)
        again = int(proc.popen.stdout.readline())
        self.assertGreater(again, 0)
        self.cut(proc)
        wrong = []
        for path in (self.path("heir"), self.path("readonly"),
                     *(os.path.join(outside, "again%d" % number) for number in range(40))):
            with open(path, "rb") as f:
                if f.read() != b"newer" * 1000:
                    wrong.append(path)
        self.assertEqual(wrong, [])
        self.report("%d inode numbers used again outside; nothing old came back", again)

    def test_size_over_the_path_mtu_is_given_up_for_the_processes_records(self):
        # The cables carry 9000, replica 1's way 1400, and no ICMP says so.
        self.rig_.net.jumbo(9000)
        self.rig_.net.narrow(1, 1400)
        proc = self.start(sys.executable, "-c", BLOCKS, self.path("f"))
        self.numbers(proc, 1)
        self.wait_mode("replicated")

        def sizes():
            reports = json.loads(self.rig_.volume.run("salius", "status", self.directory, "--json").stdout)["replicas"]
            return [report["datagram_bytes"] for report in reports]
        self.assertEqual(sizes()[0], 8972)
        for _ in range(100):
            last = self.numbers(proc, 20)[-1]
            if sizes()[1] == 1232:
                break
        else:
            self.fail("the size is not learnt: %s" % sizes())
        self.assertEqual(sizes()[0], 8972)
        lost = self.rig_.net.dropped(1)
        last = self.numbers(proc, 100)[-1]
        lost = self.rig_.net.dropped(1) - lost
        self.report("learnt after %d records; %d of 100 more were lost on the way", last - 100, lost)
        self.assertLess(lost, 20)
        last = self.cut(proc, lose_replica=False) or last
        with open(self.path("f"), "rb") as f:
            self.assertIn(int(f.read(20)), (last, last + 1))

    def test_no_success_after_the_coordinator_has_died(self):
        proc, _ = self.writer()
        self.numbers(proc, 100)
        os.kill(proc.pid, signal.SIGKILL)
        lines = proc.popen.stdout.read().splitlines()
        self.assertEqual(lines[-1], "errno %d" % errno.EIO)

    def test_nothing_is_replayed_when_only_processes_died(self):
        proc, _ = self.writer()
        last = self.numbers(proc, 1500)[-1]
        self.kill_all(proc)
        last = max([last] + [int(line) for line in proc.popen.stdout.read().split()])
        code, report = self.rig_.volume.recover_json()
        self.assertEqual((code, report["same_life"], report["files_changed"]), (0, True, 0), report)
        with open(self.path("f"), "rb") as f:
            found = max(int(f.read(512)) for _ in range(64))
        self.assertIn(found, (last, last + 1))

    def test_replicas_lost_and_back(self):
        proc, _ = self.writer()
        self.numbers(proc, 100)
        self.assertEqual(self.status()["mode"].split()[0], "replicated")
        for replica in self.rig_.replicas:
            replica.kill()
        # Writes wait until the volume is in mode local, then for the disk.
        self.numbers(proc, 2000)
        self.wait_mode("local")
        for replica in self.rig_.replicas:
            replica.start()
        self.wait_mode("replicated")
        self.numbers(proc, 2000)

    def test_second_run_joins_the_first(self):
        first = self.start("cat", pipe_in=True)
        self.wait_mode("replicated")
        second = self.run_once(sys.executable, "-c", "import os; fd = os.open(%r, os.O_CREAT | os.O_RDWR | os.O_SYNC); "
                               "os.write(fd, b'joined')" % os.path.join(self.directory, "g"))
        self.assertEqual((second.returncode, second.stderr), (0, ""))
        first.popen.stdin.close()
        first.wait(30)
        self.assertTrue(self.status()["state"].strip().startswith("clean"))

    def test_run_on_another_volume_within_a_run_is_refused(self):
        first = self.directory
        other = self.rig(m=2, acks=2, memory=self.MEMORY, size_mb=256, user=self.USER,
                         init_options=("--direct", "--log-max", self.LOG_MAX, "--delta", self.DELTA))
        self.directory = other.backing
        inner = self.words("true")
        self.directory = first
        done = self.run_once(*inner)
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertIn("start salius-run --direct %s outside of it" % other.backing, done.stderr)
        done = self.run_once(*self.words("true"))  # of the same volume: it joins
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_second_run_may_end_before_the_first_begins_its_command(self):
        for replica in self.rig_.replicas:  # the first waits for them
            replica.kill()
        first = self.start("sh", "-c", "echo begun; exec cat", pipe_in=True)
        wait_until(lambda: os.path.exists(self.rig_.volume.salius_file("direct.sock")), 30, "no socket")
        second = self.run_once("true")
        self.assertEqual((second.returncode, second.stderr), (0, ""))
        self.assertEqual(first.popen.stdout.readline(), "begun\n")
        first.popen.stdin.close()
        self.assertEqual(first.wait(30), 0)

    def test_exit_codes_and_refusals(self):
        static = os.path.join(current().dir, "static")
        sh("gcc", "-static", "-o", static, "-x", "c", "-", input=STATIC)
        plain = os.path.join(current().dir, "plain")
        with open(plain, "w") as f:
            f.write("not a program")
        for command, code, words in ((("sh", "-c", "exit 7"), 7, ""), (("sh", "-c", "kill -TERM $$"), 143, ""),
                                     (("no-such-program",), 127, "no such program"), ((plain,), 126, "permission"),
                                     ((static,), 126, "static")):
            done = self.run_once(*command)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(words, done.stderr)
        self.directory = os.path.join(current().dir, "nothing")
        done = self.run_once("true")
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertIn(self.directory, done.stderr)

    def test_signals_reach_the_command(self):
        for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
            proc = self.start(sys.executable, "-c", "import signal, sys; "
                              "signal.signal(%d, lambda number, _: sys.exit(number)); "
                              "print('ready', flush=True); signal.pause()" % number)
            self.assertEqual(proc.popen.stdout.readline(), "ready\n")
            proc.signal(number)
            self.assertEqual(proc.popen.wait(60), number)

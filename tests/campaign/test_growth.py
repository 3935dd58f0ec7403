"""The soak's judgement: it must see a leak, and only a leak."""
import subprocess
import sys

from campaign.growth import MORE, Lives, Sample
from harness.case import Case

HOUR = 3600

# Leaks for each line of its input the KiB of memory, descriptors and threads that the line names.
# Answers each line.
LEAKING = """
import os, sys, threading
kept, forever = [], threading.Event()
for line in sys.stdin:
    kib, descriptors, threads = map(int, line.split())
    kept.append(os.urandom(kib << 10))
    kept.extend(os.dup(0) for _ in range(descriptors))
    for _ in range(threads):
        threading.Thread(target=forever.wait, daemon=True).start()
    print("done", flush=True)
"""


class Judgement(Case):

    def lives(self, values, pids=(1,), name="replica 0"):
        """Returns an hour of samples; `values` gives a sample by its second. `pids` follow each
        other, with lives of equal length."""
        lives = Lives()
        for at in range(0, HOUR + 1, 10):
            lives.put(name, pids[min(at * len(pids) // HOUR, len(pids) - 1)], Sample(at, *values(at)))
        return lives

    def grew(self, values, **kwargs):
        return bool(self.lives(values, **kwargs).judge(HOUR, {"replica 0"})[1])

    def test_flat_memory_passes(self):
        self.assertFalse(self.grew(lambda at: (10000, 40, 15)))
        self.assertFalse(self.grew(lambda at: (10000 + at % 300, 40 + at % 20 // 3, 15 + at % 5)))

    def test_growth_in_the_first_fifth_and_temporary_growth_pass(self):
        self.assertFalse(self.grew(lambda at: (10000 + min(at, 700) * 10, 40, 15)))
        self.assertFalse(self.grew(lambda at: (10000 if at % 600 else 50000, 40, 15)))

    def test_leaks_are_seen(self):
        self.assertTrue(self.grew(lambda at: (10000 + at * 0.3, 40, 15)))  # 10 % in the hour
        self.assertTrue(self.grew(lambda at: (10000, 40 + at / 200, 15)))
        self.assertTrue(self.grew(lambda at: (10000, 40, 15 + at / 200)))

    def test_a_leak_is_not_taken_for_flat_because_processes_change(self):
        """Each of three processes grows by a third, and the next begins small again."""
        def leak(at):
            return 10000 + at % (HOUR // 3) * 3, 40, 15
        lives = self.lives(leak, pids=(1, 2, 3))
        lines, bad = lives.judge(HOUR, {"replica 0"})
        self.assertIn("3 processes, one for 1200 of 3600 s", bad[0])
        self.assertEqual(lives.judge(HOUR, set())[1], [])  # none had to live through it
        self.report("%s", lines[0])

    def test_growth_of_one_process_is_not_made_of_two(self):
        """The second process is larger from its beginning."""
        lives = Lives()
        for at in range(0, HOUR + 1, 10):
            lives.put("replica 1", 1 if at < HOUR / 20 else 2, Sample(at, 10000 if at < HOUR / 20 else 50000, 40, 15))
        lines, bad = lives.judge(HOUR, {"replica 1"})
        self.assertEqual((len(lines), bad), (1, []))
        self.assertIn("2 processes", lines[0])

    def test_process_never_seen_is_named(self):
        self.assertEqual(self.lives(lambda at: (1, 1, 1)).judge(HOUR, {"primary"})[1], ["primary: never seen"])

    def test_leaks_of_a_real_process_are_seen(self):
        for leak, grows in (((0, 0, 0), False), ((100, 0, 0), True), ((0, 1, 0), True), ((0, 0, 1), True)):
            lives = Lives()
            program = subprocess.Popen([sys.executable, "-S", "-c", LEAKING], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
            self.addCleanup(program.wait)
            self.addCleanup(program.kill)
            for at in range(5 * MORE):
                program.stdin.write("%d %d %d\n" % leak)
                program.stdin.flush()
                self.assertEqual(program.stdout.readline(), "done\n")
                lives.add("program", program.pid, at)
            lines, bad = lives.judge(5 * MORE - 1, {"program"})
            self.assertEqual(bool(bad), grows, lines)
            self.report("%s", lines[0])

"""PostgreSQL through real power cuts at random moments, on a mount and on a direct volume: psql
clients insert numbered rows, one transaction each, with pgbench beside them. After every cut
(cuts.py) all transactions that were acknowledged to a client must be there, and pgbench's books
must balance.
"""
import os
import time

from apps.cuts import Cuts, read_all
from harness import postgres
from harness.case import Case
from harness.image import Image
from harness.ledger import Ledger
from harness.run import HarnessError

CLIENTS = 3


class Load:
    """CLIENTS psql writers and pgbench on a running server."""

    def __init__(self, server, ledger, last):
        self.bench = server.pgbench()
        self.writers = [postgres.PsqlWriter(server, ledger, s, last.get(s, 0) + 1) for s in range(CLIENTS)]

    def alive(self):
        return all(w.proc.alive() for w in self.writers)

    def kill(self):
        for writer in self.writers:
            writer.kill()
        self.bench.kill()


def prepare(server):
    """Makes a new cluster with pgbench's and our tables; leaves it running."""
    server.initdb()
    server.start()
    server.pgbench_init()
    server.make_ledger_table()


class PostgresCase(Case):

    def server(self, path, wrapper=()):
        return self.own(postgres.Postgres(os.path.join(path, "pg"), wrapper))

    def load(self, server, ledger, last):
        load = Load(server, ledger, last)
        self.addCleanup(load.kill)
        return load

    def cuts(self, rig, cuts):
        """Makes `cuts` power cuts, after each of which everything acknowledged must be there."""
        rig.mount(mode="replicated")
        server, ledger, last = self.server(rig.path, rig.wrapper), Ledger(), {}
        prepare(server)
        power = Cuts(self, rig, lose_one=True)
        began = time.monotonic()
        for _ in self.rounds("power cuts", cuts, lambda: "%d transactions acknowledged, all there" % ledger.total()):
            load = self.load(server, ledger, last)

            def progress(count):
                ledger.wait_total(ledger.total() + count, 60, load.alive)

            def kill():
                server.kill()
                load.kill()
            progress(self.rng.randint(20, 300))
            power.cut(progress, kill)
            rig.mount(mode="replicated" if self.rng.random() < 0.85 else None)
            read_all(rig.backing)
            server.start()
            last = postgres.check(server, ledger)
        took = time.monotonic() - began
        postgres.amcheck(server)
        server.shutdown()
        rig.mount_.umount()
        postgres.check_pages(rig.backing_file("pg"))
        cuts = rig.image.cuts
        rig.image.check()
        self.report("%d power cuts, %d transactions acknowledged, all there; %.1f s a cut; %s", cuts, ledger.total(),
                    took / cuts, power.text())


class PostgresSurvivesPowerCuts(PostgresCase):

    def test_three_replicas_two_acks_one_may_lose_its_memory(self):
        self.cuts(self.rig(m=3, acks=2, size_mb=1024, init_options=(), memory="256MiB"), self.count(20, 60))

    def direct(self, fs):
        """The same on a direct volume, which belongs to the server's user."""
        self.cuts(self.rig(m=3, acks=2, fs=fs, size_mb=1024, init_options=(), memory="256MiB", direct=True,
                           user="postgres"), self.count(10, 30))

    def test_direct_volume_on_ext4(self):
        self.direct("ext4")

    def test_direct_volume_on_xfs(self):
        self.direct("xfs")


class Controls(PostgresCase):
    """The same harness without Salius, on the bare image and beside a direct volume: no loss with
    real syncs, a detected loss without."""

    def load_then_cut(self, server, cut):
        """Loads the running, prepared `server`, calls cut(kill), and checks it after the cut."""
        # Puts earlier data on the disk: only the load's own syncs are at stake.
        server.query("CHECKPOINT")
        os.sync()
        ledger = Ledger()
        load = self.load(server, ledger, {})
        ledger.wait_total(200, 60, load.alive)

        def kill():
            server.kill()
            load.kill()
        cut(kill)
        try:
            server.start()
        except HarnessError as error:
            raise postgres.Damage("does not start after the cut: %s" % error) from None
        postgres.check(server, ledger)

    def after_one_cut(self, wrapper):
        image = self.own(Image("pg", "ext4", 1024))
        server = self.server(image.path, wrapper)
        prepare(server)
        self.load_then_cut(server, image.power_cut)

    def test_postgres_with_real_syncs_loses_nothing_on_the_bare_image(self):
        self.after_one_cut(())

    def test_postgres_under_eatmydata_loses_transactions_and_the_check_sees_it(self):
        with self.assertRaises(postgres.Damage):
            self.after_one_cut(self.eatmydata())

    def test_postgres_under_eatmydata_beside_a_direct_volume_loses_transactions(self):
        rig = self.rig(m=3, acks=2, size_mb=1024, init_options=(), memory="256MiB", direct=True, user="postgres")
        rig.mount(mode="replicated")
        server = self.server(rig.path, self.eatmydata())
        prepare(server)

        def cut(kill):
            rig.power_cut(also=kill)
            done = rig.volume.recover()
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with self.assertRaises(postgres.Damage) as caught:
            self.load_then_cut(server, cut)
        self.report("seen: %s", str(caught.exception).splitlines()[0])

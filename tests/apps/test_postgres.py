"""PostgreSQL through real power cuts at random moments: psql clients insert numbered rows, one
transaction each, with pgbench beside them. After every cut all transactions that were acknowledged
to a client must be there, and pgbench's books must balance.
"""
import os
import time

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


class PostgresSurvivesPowerCuts(Case):

    def server(self, path, wrapper=()):
        return self.own(postgres.Postgres(os.path.join(path, "pg"), wrapper))

    def load(self, server, ledger, last):
        load = Load(server, ledger, last)
        self.addCleanup(load.kill)
        return load

    def test_three_replicas_two_acks_one_may_lose_its_memory(self):
        rig = self.rig(m=3, acks=2, size_mb=1024, init_options=(), memory="256MiB")
        rig.mount(mode="replicated")
        server, ledger, last = self.server(rig.path), Ledger(), {}
        prepare(server)
        began = time.monotonic()
        for cut in self.rounds("power cuts", self.count(20, 60),
                               lambda: "%d transactions acknowledged, all there" % ledger.total()):
            load = self.load(server, ledger, last)
            ledger.wait_total(ledger.total() + self.rng.randint(20, 300), 60, load.alive)
            if self.rng.random() < 0.3:
                rig.disk_ahead(self.rng)

            def also():
                server.kill()
                load.kill()
            rig.power_cut(shutdown_first=self.rng.random() < 0.3, also=also)
            fate = self.rng.choice(["nothing", "restart", "reboot"])
            if fate != "nothing":
                getattr(self.rng.choice(rig.replicas), fate)()
            if self.rng.random() < 0.5:
                done = rig.volume.recover()
                self.assertEqual(done.returncode, 0, "cut %d, a replica's %s:\n%s%s" % (
                    cut, fate, done.stdout, done.stderr))
            rig.mount("recover=auto", mode="replicated" if self.rng.random() < 0.85 else None)
            server.start()
            last = postgres.check(server, ledger)
        took = time.monotonic() - began
        postgres.amcheck(server)
        server.shutdown()
        rig.mount_.umount()
        self.report("%d power cuts, %d transactions acknowledged, all there; %.1f s a cut", rig.image.cuts,
                    ledger.total(), took / rig.image.cuts)


class Controls(Case):
    """The same harness on the bare image: no loss with real syncs, a detected loss without."""

    def after_one_cut(self, wrapper):
        image = self.own(Image("pg", "ext4", 1024))
        server = self.own(postgres.Postgres(os.path.join(image.path, "pg"), wrapper))
        prepare(server)
        # Puts earlier data on the disk: only the load's own syncs are at stake.
        server.query("CHECKPOINT")
        os.sync()
        ledger = Ledger()
        load = Load(server, ledger, {})
        self.addCleanup(load.kill)
        ledger.wait_total(200, 60, load.alive)

        def kill():
            server.kill()
            load.kill()
        image.power_cut(kill)
        try:
            server.start()
        except HarnessError as error:
            raise postgres.Damage("does not start after the cut: %s" % error) from None
        postgres.check(server, ledger)

    def test_postgres_with_real_syncs_loses_nothing_on_the_bare_image(self):
        self.after_one_cut(())

    def test_postgres_under_eatmydata_loses_transactions_and_the_check_sees_it(self):
        with self.assertRaises(postgres.Damage):
            self.after_one_cut(self.eatmydata())

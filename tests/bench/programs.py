"""Applications with the sync they really do, each on one directory: the subjects of
bench.applications.

Every class is made on a directory. `pin`: words before every command (taskset). `wrapper`: words
before the command that writes the files too (eatmydata). round(seconds) returns {"operations",
"ops_per_second", ...}. check() looks, after a SIGKILL of the writer, whether every acknowledged
operation can be read, and raises Unreadable. close() ends its processes.
"""
import os
import re
import shutil
import sqlite3

from bench.driver import Driver
from bench.servers import MariaDb, Postgres, Redis, program
from harness.run import HarnessError, sh

PROBE_OPERATIONS = 50  # to find the number of operations in a round
SLACK_S = 600          # a round that was sized by a faster probe may take longer


class Unreadable(HarnessError):
    """Something acknowledged cannot be read back."""


def same(what, expected, found):
    if expected != found:
        raise Unreadable("%s: %s were acknowledged, %s are there" % (what, expected, found))


class Application:
    name = package = ""
    programs = ()
    user = None  # that writes the files; None: this one

    def __init__(self, directory, size, pin=(), wrapper=()):
        self.directory, self.size = directory, size
        self.pin, self.wrapper = list(pin), list(pin) + list(wrapper)
        self.done = 0  # operations acknowledged, over all rounds
        self.rate = 0  # of the last round, for programs that take a number of operations
        self.set_up()

    @classmethod
    def missing(cls):
        """Returns why it cannot be run here, in words; None when it can."""
        absent = [p for p in cls.programs if program(p) is None]
        return "skipped: no %s (apt-get install %s)" % (", ".join(absent), cls.package) if absent else None

    def round(self, seconds):
        figures = self.write(seconds)
        self.done += figures["operations"]
        return figures

    def counted(self, seconds, run):
        """Runs a round of a program that takes a number of operations: run(n) returns its seconds.
        Before the first round some probes find how many make a round."""
        if not self.rate:
            count, took = PROBE_OPERATIONS, run(PROBE_OPERATIONS)
            self.done += count
            while took < seconds / 4:  # the start must not count for much
                count *= 4
                took = run(count)
                self.done += count
            self.rate = count / took
        count = max(PROBE_OPERATIONS, int(self.rate * seconds))
        self.rate = count / run(count)
        return {"operations": count, "ops_per_second": self.rate}

    def pretend(self):
        """Pretends that one more operation was acknowledged: check() must find it missing."""
        self.done += 1

    def close(self):
        pass


class Sqlite(Application):
    """SQLite: a transaction per row, synchronous=FULL."""
    journal = ""

    def set_up(self):
        self.file = os.path.join(self.directory, "db")
        self.driver = Driver(["sqlite", self.file, "--journal", self.journal, "--size", str(self.size)],
                             wrapper=self.wrapper)

    def write(self, seconds):
        return self.driver.round(seconds)

    def check(self):
        self.driver.kill()
        database = sqlite3.connect(self.file)
        try:
            same("integrity check", "ok", database.execute("PRAGMA integrity_check").fetchone()[0])
            same("rows", self.done, database.execute(
                "SELECT count(*) FROM bench WHERE length(body) = ?", (self.size,)).fetchone()[0])
        except sqlite3.Error as error:
            raise Unreadable("SQLite: %s" % error) from None
        finally:
            database.close()

    def close(self):
        self.driver.close()


class SqliteWal(Sqlite):
    name, journal = "sqlite-wal", "wal"


class SqliteDelete(Sqlite):
    name, journal = "sqlite-delete", "delete"


class RocksDb(Application):
    """db_bench fillseq with a sync per write; a new database for every round."""
    name, package, programs = "rocksdb", "rocksdb-tools", ("db_bench", "ldb")

    def set_up(self):
        self.database = os.path.join(self.directory, "rocksdb")
        self.last = 0  # keys of the last round

    def write(self, seconds):
        return self.counted(seconds, self._fill)

    def _fill(self, count):
        shutil.rmtree(self.database, ignore_errors=True)
        out = sh(*self.wrapper, program("db_bench"), "--benchmarks=fillseq", "--sync=1", "--threads=1",
                 "--db=" + self.database, "--num=%d" % count, "--value_size=%d" % self.size,
                 "--compression_type=none", timeout=SLACK_S).stdout
        found = re.search(r"^fillseq\s*:.*?([\d.]+) seconds (\d+) operations", out, re.M)
        if not found or int(found.group(2)) != count:
            raise HarnessError("db_bench said:\n" + out)
        self.last = count
        # "seconds" is rounded to milliseconds; this is not.
        micros = float(re.search(r"^fillseq\s*:\s*([\d.]+) micros/op", out, re.M).group(1))
        return micros * count / 1e6

    def pretend(self):
        self.last += 1

    def check(self):
        found = re.search(r"Keys in range: (\d+)", sh(program("ldb"), "--db=" + self.database, "dump", "--count_only",
                                                      timeout=SLACK_S).stdout)
        same("keys", self.last, int(found.group(1)) if found else None)


class RedisAof(Application):
    """SET with appendonly and appendfsync always. The value holds the number of the SET."""
    name, package, programs = "redis-aof", "redis-server", ("redis-server", "redis-cli")
    _port = 6500

    def set_up(self):
        RedisAof._port += 1
        self.server = Redis(RedisAof._port, self.directory, (
            "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"),
            self.wrapper)
        self.driver = None
        try:
            self.driver = Driver(["redis", self.server.address, "--size", str(self.size)], wrapper=self.pin)
        except BaseException:
            self.close()
            raise

    def write(self, seconds):
        return self.driver.round(seconds)

    def check(self):
        self.server.kill()
        self.server.start()
        same("SETs", "%016d" % self.done, self.server.ask("getrange", "bench:0", "0", "15").strip())

    def close(self):
        if self.driver:
            self.driver.close()
        self.server.close()


class Pgbench(Application):
    """pgbench's simple update (-N), one client."""
    name, package, user = "pgbench", "postgresql", "postgres"
    programs = ("postgres", "initdb", "psql", "pgbench")
    _port = 5600

    def set_up(self):
        Pgbench._port += 1
        self.server = Postgres(os.path.join(self.directory, "postgres"), Pgbench._port, wrapper=self.wrapper)
        try:
            self.server.make().start()
            self._pgbench("-i", "-q", "-s", "1")
        except BaseException:
            self.close()
            raise

    def _pgbench(self, *words, timeout_s=300):
        return sh(*self.pin, program("pgbench"), "-h", "127.0.0.1", "-p", str(self.server.port), "-U", "postgres", *words,
                  "postgres", timeout=timeout_s).stdout

    def write(self, seconds):
        seconds = max(1, round(seconds))  # pgbench takes whole seconds
        out = self._pgbench("-n", "-N", "-c", "1", "-T", str(seconds), timeout_s=SLACK_S + seconds)
        count = re.search(r"transactions actually processed: (\d+)", out)
        rate = re.search(r"tps = ([\d.]+)", out)
        if not count or not rate:
            raise HarnessError("pgbench said:\n" + out)
        return {"operations": int(count.group(1)), "ops_per_second": float(rate.group(1))}

    def check(self):
        self.server.kill()
        self.server.start()
        same("transactions", str(self.done), self.server.query("SELECT count(*) FROM pgbench_history"))
        history, accounts = self.server.query(
            "SELECT (SELECT coalesce(sum(delta), 0) FROM pgbench_history), (SELECT sum(abalance) FROM "
            "pgbench_accounts)").split("|")
        same("balance", history, accounts)

    def close(self):
        self.server.close()


class Maria(Application):
    """mysqlslap: one client's INSERTs, each a transaction, innodb_flush_log_at_trx_commit=1."""
    name, package, user = "mariadb", "mariadb-server", "mysql"
    programs = ("mariadbd", "mariadb-install-db", "mariadb", "mysqlslap")

    def set_up(self):
        self.server = MariaDb(os.path.join(self.directory, "mariadb"), wrapper=self.wrapper)
        try:
            self.server.query("CREATE DATABASE bench; CREATE TABLE bench.bench(n BIGINT AUTO_INCREMENT PRIMARY KEY, "
                              "body LONGBLOB)")
        except BaseException:
            self.close()
            raise

    def write(self, seconds):
        return self.counted(seconds, self._insert)

    def _insert(self, count):
        out = sh(*self.pin, *self.server.client("mysqlslap"), "--create-schema=bench", "--no-drop", "--concurrency=1",
                 "--number-of-queries=%d" % count, "--csv", "--query=INSERT INTO bench(body) VALUES (REPEAT('x', %d))"
                 % self.size, timeout=SLACK_S).stdout
        return max(float(out.strip().split(",")[2]), 1e-3)

    def check(self):
        self.server.kill()
        self.server.start()
        same("rows", str(self.done), self.server.query("SELECT count(*) FROM bench.bench WHERE length(body) = %d" %
                                                       self.size))

    def close(self):
        self.server.close()


APPLICATIONS = {a.name: a for a in (SqliteWal, SqliteDelete, RocksDb, RedisAof, Pgbench, Maria)}

"""Servers by others, started for a benchmark: Redis, PostgreSQL, MariaDB. Each on 127.0.0.1 or a
socket in the run's own directory, in the benchmark's network namespace. `wrapper`: words before the
server's command (taskset, eatmydata)."""
import glob
import os
import shutil
import signal

from harness.postgres import AS_POSTGRES
from harness.proc import Proc, tail
from harness.run import HarnessError, current, sh, wait_until

READY_S = 120
AS_MYSQL = ["setpriv", "--reuid", "mysql", "--regid", "mysql", "--init-groups"]


def program(name):
    """Returns the path of a program, or None. Servers of distributions are not always in PATH."""
    places = [os.environ.get("PATH", ""), "/usr/local/sbin:/usr/sbin:/sbin"]
    places += sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    return shutil.which(name, path=":".join(places))


def free_name(kind):
    """Returns an unused path in the run's directory."""
    free_name.count += 1
    return os.path.join(current().dir, "%s%d" % (kind, free_name.count))


free_name.count = 0


# Words before a command whose processes end with its first one; end() does that.
OWN_PIDS = ["unshare", "--pid", "--fork", "--kill-child"]


def end(proc):
    """Kills every process of a Proc that was started with OWN_PIDS, and waits until they have
    ended."""
    try:
        with open("/proc/%d/task/%d/children" % (proc.pid, proc.pid)) as f:
            first = f.read().split()
    except FileNotFoundError:
        first = []
    if proc.alive() and first:
        os.kill(int(first[0]), signal.SIGKILL)
        # Unshare ends after the namespace's first process, which ends after all others.
        proc.wait(60)
    proc.kill()


class Server:
    """One server process that ends with the benchmark; `proc` and `log` after launch()."""

    proc = None

    def launch(self, argv, log, ready):
        """Starts the server and returns when ready() is true."""
        self.log = log
        self.proc = Proc(argv, log)
        try:
            wait_until(lambda: self._alive() and ready(), READY_S,
                       lambda: "%s does not answer:\n%s" % (argv[0], tail(log)), 0.05)
        except BaseException:
            self.kill()
            raise
        return self

    def _alive(self):
        if not self.proc.alive():
            raise HarnessError("a server ended with %s:\n%s" % (self.proc.popen.returncode, self.proc.tail()))
        return True

    def kill(self):
        """Kills the server, as a crash would."""
        if self.proc:
            self.proc.kill_group()
            self.proc = None

    close = kill


class Redis(Server):
    """redis-server on `port`, without persistence unless the options say so."""

    def __init__(self, port, directory, options=(), wrapper=()):
        self.port = port
        self.address = "127.0.0.1:%d" % port
        self._argv = [*wrapper, program("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--dir", directory,
                      "--daemonize", "no", *(options or ("--save", "", "--appendonly", "no"))]
        self.start()

    def start(self):
        return self.launch(self._argv, free_name("redis") + ".log", self._ready)

    def _ready(self):
        """Returns whether the process itself, not an earlier user of the port, answers and has
        loaded its data."""
        info = self.ask("info", check=False).splitlines()
        pid = next((int(line.split(":")[1]) for line in info if line.startswith("process_id:")), None)
        return pid is not None and os.getpgid(pid) == self.proc.pid and "loading:0" in info

    def ask(self, *words, check=True):
        """Returns redis-cli's output."""
        return sh(program("redis-cli"), "-p", str(self.port), *words, check=check).stdout


class Postgres(Server):
    """A cluster in `data` (new), on TCP port `port`; start() after make() or copy(). `settings`:
    {name: value}."""

    # No checkpoint and no clean-up in the middle of a round; the log holds a whole run.
    SETTINGS = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "on",
                "checkpoint_timeout": "1h", "max_wal_size": "16GB", "autovacuum": "off", "shared_buffers": "128MB"}

    def __init__(self, data, port, settings=(), wrapper=()):
        self.data, self.port = data, port
        self.settings = {**self.SETTINGS, **dict(settings), "port": port}
        self.wrapper = list(wrapper)
        self.conninfo = "host=127.0.0.1 port=%d user=postgres dbname=postgres" % port
        os.mkdir(data, 0o700)
        shutil.chown(data, "postgres", "postgres")

    def make(self):
        sh(*AS_POSTGRES, *self.wrapper, program("initdb"), "-D", self.data, "--locale=C.UTF-8", "-E", "UTF8", "-A", "trust",
           timeout=300)
        return self

    def copy(self, primary, name):
        """Makes a standby of `primary`, known there as `name`."""
        sh(*AS_POSTGRES, program("pg_basebackup"), "-D", self.data, "-R", "-c", "fast",
           "-d", "host=127.0.0.1 port=%d user=postgres application_name=%s" % (primary.port, name), timeout=300)
        return self

    def start(self):
        words = [w for name, value in self.settings.items() for w in ("-c", "%s=%s" % (name, value))]
        # The processes of an earlier start may not be reaped yet.
        if os.path.exists(os.path.join(self.data, "postmaster.pid")):
            os.unlink(os.path.join(self.data, "postmaster.pid"))
        return self.launch(AS_POSTGRES + self.wrapper + [program("postgres"), "-D", self.data, *words],
                           free_name("postgres") + ".log",
                           # This server answers, not an earlier user of the port.
                           lambda: self.query("SHOW data_directory", check=False) == self.data)

    def kill(self):
        if self.proc:
            self.proc.kill_tree()
            self.proc = None

    close = kill

    def query(self, sql, check=True):
        done = sh(program("psql"), "-qAtX", "-v", "ON_ERROR_STOP=1", self.conninfo, "-c", sql, check=check)
        return done.stdout.strip() if done.returncode == 0 else None


class MariaDb(Server):
    """MariaDB on a new data directory, on a socket only."""

    def __init__(self, data, options=(), wrapper=()):
        os.mkdir(data, 0o700)
        # The run's directory is root's; the server's socket needs another.
        sockets = free_name("mariadb")
        os.mkdir(sockets)
        for path in (data, sockets):
            shutil.chown(path, "mysql", "mysql")
        self.socket = os.path.join(sockets, "sock")
        sh(program("mariadb-install-db"), "--no-defaults", "--user=mysql", "--datadir=" + data,
           "--auth-root-authentication-method=normal", "--skip-test-db", timeout=600)
        self._argv = [*AS_MYSQL, *wrapper, program("mariadbd"), "--no-defaults", "--datadir=" + data,
                      "--socket=" + self.socket, "--skip-networking", "--innodb-flush-log-at-trx-commit=1",
                      "--pid-file=" + os.path.join(sockets, "pid"), *options]
        self.start()

    def start(self):
        return self.launch(self._argv, free_name("mariadb") + ".log", lambda: self.query("SELECT 1", check=False) == "1")

    def client(self, name):
        """Returns the first words of a client's command."""
        return [program(name), "--no-defaults", "--socket=" + self.socket, "--user=root"]

    def query(self, sql, check=True):
        done = sh(*self.client("mariadb"), "--skip-column-names", "--batch", "--execute", sql, check=check, timeout=300)
        return done.stdout.strip() if done.returncode == 0 else None

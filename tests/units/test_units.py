"""The systemd units: what systemd-analyze(1) says of their sandboxes, and what Salius relies on."""

import pathlib
import re
import subprocess
import unittest

DEPLOY = pathlib.Path(__file__).resolve().parent.parent.parent / "deploy"
REPLICA = DEPLOY / "salius-replica.service"
MOUNT = DEPLOY / "salius-mount@.service"
RIGHTS = DEPLOY.parent / "storage" / "volume_rights.cc"


def exposure(unit: pathlib.Path) -> float:
    """Returns systemd's rating: 0 is the best, 10 is a process of root without a sandbox."""
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    found = re.search(r"Overall exposure level for \S+: (\d+\.\d+)", done.stdout)
    assert found, f"systemd-analyze: exit {done.returncode}\n{done.stdout[-500:]}{done.stderr}"
    return float(found[1])


def settings(unit: pathlib.Path, name: str) -> list[str]:
    """Returns the values of a setting, one for each of its lines."""
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), re.M)


class Units(unittest.TestCase):
    def test_replica_is_sandboxed(self) -> None:
        self.assertLessEqual(exposure(REPLICA), 3.0)

    def test_mount_is_sandboxed(self) -> None:
        self.assertLessEqual(exposure(MOUNT), 5.0)

    def test_replica_runs_as_the_user_that_is_made(self) -> None:
        user = re.search(r"^u (\S+) ", (DEPLOY / "salius.sysusers").read_text(), re.M)
        assert user
        self.assertEqual(settings(REPLICA, "User"), [user[1]])
        self.assertEqual(settings(REPLICA, "CapabilityBoundingSet"), [""])

    def test_stop_of_replica_keeps_its_memory(self) -> None:
        # With RemoveIPC=yes systemd removes all that the user has in /dev/shm.
        self.assertEqual(settings(REPLICA, "RemoveIPC"), ["no"])

    def test_no_core_dumps(self) -> None:
        for unit in (REPLICA, MOUNT):
            self.assertEqual(settings(unit, "LimitCORE"), ["0"])

    def test_mount_may_keep_what_a_mount_always_needs(self) -> None:
        always = RIGHTS.read_text().partition("needed = {")[2].partition("};")[0]
        allowed = " ".join(settings(MOUNT, "CapabilityBoundingSet")).split()
        self.assertCountEqual(re.findall(r'"(CAP_\w+)"', always), allowed)

    def test_unit_of_mount_shares_its_mounts(self) -> None:
        # Each of these gives the unit a mount namespace, whose mounts the host does not see.
        private = ("PrivateTmp", "PrivateDevices", "PrivateMounts", "ProtectSystem", "ProtectHome", "ProtectProc",
                   "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups",
                   "ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "BindPaths", "TemporaryFileSystem",
                   "RootDirectory", "MountFlags", "PrivateIPC", "ProcSubset")
        for name in private:
            self.assertEqual(settings(MOUNT, name), [], name)


if __name__ == "__main__":
    unittest.main()

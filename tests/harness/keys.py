"""A private authority of `salius keys`, and the files that its hosts have."""
import os
import shutil

from harness.run import binary, current, sh


class Keys:
    """An authority in a directory of its own. The constructor makes it."""

    _serial = 0

    def __init__(self, *options):
        Keys._serial += 1
        self.directory = os.path.join(current().dir, "keys-%d" % Keys._serial)
        self._hosts = self.directory + "-hosts"
        self.call("init", *options)

    def call(self, action, *words):
        """Runs `salius keys` on the authority."""
        return sh(binary("salius"), "keys", action, self.directory, *words)

    def file(self, identity):
        """Returns the authority's own copy of an identity's file."""
        return os.path.join(self.directory, identity.replace("/", "-") + ".pem")

    def issue(self, identity, *options):
        """Makes an identity, and installs its files on a host of its own; returns the host's
        file."""
        self.call("issue", identity, *options)
        return self.install(identity)

    def renew(self, identity):
        """Renews an identity and installs the new file in place of the old one."""
        self.call("renew", identity)
        return self.install(identity)

    def install(self, identity):
        """Copies the authority's files to the identity's host, each by one rename(2)."""
        folder = os.path.join(self._hosts, identity.replace("/", "-"))
        os.makedirs(folder, 0o700, exist_ok=True)
        path = os.path.join(folder, os.path.basename(self.file(identity)))
        for source, target in ((os.path.join(self.directory, "ca.pem"), os.path.join(folder, "ca.pem")),
                               (self.file(identity), path)):
            shutil.copy(source, target + ".new")
            os.chmod(target + ".new", 0o600)
            os.rename(target + ".new", target)
        return path

    def replica(self, replica):
        """Makes the identity of a harness Replica; returns its file. The certificate is for the
        address by which volumes know it."""
        return self.issue("replica/r%d" % replica.index, "--hosts", replica.address.rpartition(":")[0])

"""A volume that works while a test looks at its datagrams, or sends some of its own."""
from harness import frames, ops
from harness.case import Case
from harness.rig import PATIENT


class WiredCase(Case):

    def at_work(self, m=3, acks=2, keys=None, options="recover=auto", init_options=PATIENT):
        """Returns a volume with every replica a member, the wire to replica 0, and a writer with
        some acknowledgements. `keys`: as of Rig; with them the datagrams are sealed."""
        rig = self.rig(m=m, acks=acks, keys=keys, init_options=init_options)
        rig.mount(options, insecure=not keys).wait_whole()
        wire = self.own(frames.Wire(rig.net, 0))
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(50)
        return rig, wire, writer

    def recovered(self, rig, writer, lost=None):
        """Recovers after a power cut, with replica `lost` lost, and checks the result."""
        rig.power_cut(also=writer.kill)
        if lost is not None:
            rig.replicas[lost].lose_memory()
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)

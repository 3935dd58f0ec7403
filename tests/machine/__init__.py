"""Whole machines: primary and replicas as QEMU guests whose plug is pulled."""

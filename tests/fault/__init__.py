"""Faults against real binaries; see docs/testing.md."""

"""Real faults in random schedules from a seed; see docs/testing.md."""

"""Real applications through power cuts; see docs/testing.md."""

"""The demo: a recorded model fixes a bundled sample project, without key or network."""

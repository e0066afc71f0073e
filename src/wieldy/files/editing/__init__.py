"""Changing files without harming them: bytes in, bytes out. Knows nothing of agents."""

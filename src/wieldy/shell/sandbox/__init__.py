"""Confine commands with bubblewrap or Landlock."""

"""Backends that come with wieldy: this machine, and an overlay of a folder in a namespace."""

"""BLAKE2 by itself: `hashlib` would load all of OpenSSL with it, which takes longer than to read a first file."""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

__all__ = ["blake2b"]

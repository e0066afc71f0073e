"""Compute edits: find text, splice bytes, merge and diff. Nothing here writes to disk."""

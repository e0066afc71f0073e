"""Jupyter notebooks changed cell by cell, in their own bytes: what an edit does not name stays as it was written."""

"""Copies of a project to work in, and what has changed in them."""

"""The journal: every change recorded in SQLite before it happens, so that it can be undone."""

"""Everything about one file on disk: reading, editing, writing and the journal for undo."""

"""Write files atomically: where a write lands, how it is committed, and how a crash is repaired."""

"""A model and a toolbox in a loop: sessions, turns, transcripts, compaction, subagents."""

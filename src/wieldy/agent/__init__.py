"""A model and a toolbox in a loop: requests, streaming execution, transcripts, compaction."""

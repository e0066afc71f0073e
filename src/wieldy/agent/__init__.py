"""`Session`: the loop around a model, its transcript, compaction, resuming, runs of subagents.

Other rooms use `session`, `records` and `transcript`. It imports all rooms before it.
"""

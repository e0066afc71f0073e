"""What all rooms share: the types of a call (tool, effects, decision, outcome, events, errors), text, git, threads, schemas.

Any room may use it. It imports no other room.
"""

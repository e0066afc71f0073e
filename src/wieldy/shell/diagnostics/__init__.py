"""What a change broke, as the checkers of its language see it: only new errors, only within a deadline."""

"""JSON in, JSON out: what input a tool takes, and how a call's JSON becomes Python values."""

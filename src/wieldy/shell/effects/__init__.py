"""What a command line would do: read-only proofs, effects, and catastrophic commands."""

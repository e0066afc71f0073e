"""Run commands: start, capture output, background shells, and end every process they left."""

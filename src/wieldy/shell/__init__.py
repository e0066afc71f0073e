"""Understanding and running commands. Knows nothing of agents."""

"""Walking, matching and searching trees. Knows nothing of agents."""

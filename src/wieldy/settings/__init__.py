"""Settings from several layers, each value with its origin."""

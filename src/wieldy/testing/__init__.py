"""Shipped doubles for the world: what to test an agent with."""

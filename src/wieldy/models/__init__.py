"""Model APIs: one adapter for each, and the scripted model."""

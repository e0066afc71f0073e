"""Models behind APIs: one adapter an API, and the recorded model."""

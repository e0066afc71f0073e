"""Skills, and the discovery of Markdown definitions."""

"""Showing what is in a file: pages of text, pictures, documents, notebooks. Knows nothing of agents."""

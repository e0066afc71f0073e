"""A short tour of the tools on a bundled sample project: no model, no key, no network."""

"""A recorded model at work on a bundled sample project: no key, no network."""

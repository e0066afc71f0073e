"""Shared types: calls, effects, decisions, outcomes, events, errors and the protocols of collaborators."""

"""Subagents: their definitions, tasks, reports and registry."""

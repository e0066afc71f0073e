"""What may happen: permissions, hooks, settings.

Other rooms call `permissions.decide`, fire events through `hooks.dispatch` and load `settings`.
It imports `core`, `files`, `shell` and, for the facts of a tool, `tools`.
"""

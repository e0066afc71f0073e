"""Settings from several layers, each value with its origin."""

from wieldy.policy.settings.load import Settings, load_settings

__all__ = ["Settings", "load_settings"]

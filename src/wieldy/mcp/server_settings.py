"""What a server looks at before each request: whether the settings are still those it has read."""

from wieldy.settings.files import SettingsFiles

__all__ = ["SettingsFiles"]

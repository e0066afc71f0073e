"""What may happen: permissions, hooks and settings."""

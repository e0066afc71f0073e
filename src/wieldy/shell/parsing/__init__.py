"""Bash source → a syntax tree. What the grammar does not know for certain is refused, never guessed."""

"""The terminal interface: a line prompt, events as lines, and questions."""

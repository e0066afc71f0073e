"""What a person sees: events as lines, and a line prompt. Nothing here decides anything."""

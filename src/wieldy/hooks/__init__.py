"""Commands and callables that are told of a moment and may speak."""

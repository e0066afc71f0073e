"""Commands and Python functions that run at events of a session and may observe, add, rewrite or block."""

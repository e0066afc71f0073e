"""Rules, modes and the one pure function that decides."""

"""Skills: folders with a `SKILL.md`, found in the project and with the user, listed briefly, loaded when needed."""

"""Both sides of the Model Context Protocol. The SDK is imported when a server is configured, not before."""

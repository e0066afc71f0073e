"""The vocabulary: frozen data, protocols, events and failures. Imports the standard library only, and no asyncio."""

"""The vocabulary: frozen data, protocols, events and failures. Standard library only; asyncio only in `threads`."""

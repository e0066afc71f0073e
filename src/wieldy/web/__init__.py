"""Pages from the web: which addresses may be reached, how they are fetched, and what a model gets to read of them."""

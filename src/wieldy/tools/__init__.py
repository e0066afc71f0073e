"""One tool a module, with the words a model reads in the .md of the same name."""

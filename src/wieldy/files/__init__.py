"""What bytes are: the encoding a text is kept in, and the kind of a file that is no text."""

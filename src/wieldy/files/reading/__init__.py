"""Read files for a model: pages of text, images, PDF documents and notebooks."""

# A page of text, unless a call asks for less or more.
MAX_LINES = 2000
MAX_CHARS = 200_000

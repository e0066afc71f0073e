"""Read files for a model: pages of text, images, PDF documents and notebooks."""

"""A real browser under a model's hands: one page, every connection judged, nothing left behind."""

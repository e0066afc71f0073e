"""Which tools a model is offered: feature gates, order, deferral and search."""

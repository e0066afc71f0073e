"""Which tools a model is offered: all there are, those that fit the context, and the order in which they are sent."""

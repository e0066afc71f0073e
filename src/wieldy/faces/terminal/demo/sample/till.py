"""A tiny shop till."""

from decimal import Decimal


class Basket:
    """Goods and their prices."""

    def __init__(self):
        self.lines = []

    def add(self, name, price, count=1):
        self.lines.append((name, Decimal(price), count))

    def total(self):
        # TODO: counts are ignored
        return sum(price for _, price, _ in self.lines)

    def discounted(self, percent):
        # TODO: should round to cents
        return self.total() * (100 - percent) / 100

import unittest
from decimal import Decimal

from till import Basket


class TillTest(unittest.TestCase):
    def setUp(self):
        self.basket = Basket()
        self.basket.add("apple", "0.35", 3)
        self.basket.add("bread", "2.20")

    def test_counts_matter(self):
        self.assertEqual(self.basket.total(), Decimal("3.25"))

    def test_discount_is_in_cents(self):
        self.assertEqual(self.basket.discounted(15), Decimal("2.76"))


if __name__ == "__main__":
    unittest.main()

"""Data from outside: read, checked and reported on; nothing is filled in."""

from pear.data.prices import PriceError, Prices, read_prices
from pear.data.sources import fetch_prices, load_prices

__all__ = ["PriceError", "Prices", "fetch_prices", "load_prices", "read_prices"]

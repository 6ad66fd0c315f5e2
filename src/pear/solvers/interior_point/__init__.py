"""The built-in interior points, dense and sparse."""

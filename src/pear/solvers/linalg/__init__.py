"""Factorisations and orderings of sparse systems."""

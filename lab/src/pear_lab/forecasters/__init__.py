"""Forecasters compared on one task: what a user has already, and what PEAR makes of it, in money."""

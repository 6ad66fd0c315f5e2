"""Forecasters beside each other on one task: what a user has already, and what PEAR makes of it, in money."""

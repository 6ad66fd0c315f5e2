"""Benchmarks: what is claimed of exactness and speed, measured."""

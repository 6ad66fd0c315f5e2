"""Stress tests: random problems of every awkward kind, sweeps that are killed, long training."""

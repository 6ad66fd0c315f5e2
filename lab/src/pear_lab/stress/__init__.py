"""Stress tests: random problems of every awkward kind, sweeps whose processes are killed, and long training."""

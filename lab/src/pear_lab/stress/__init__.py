"""Stress tests: difficult random problems of many kinds, sweeps whose processes are killed, and long training."""

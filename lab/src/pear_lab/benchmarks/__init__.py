"""Benchmarks of PEAR's time, memory and exactness, which ``pear bench`` runs."""

"""Benchmarks, which measure the exactness and the speed that PEAR claims."""

"""Functions made faster without changing what they compute: CUDA graphs."""

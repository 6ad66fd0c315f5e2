"""Solvers from other packages, one file each."""

"""Adapters: solvers of other packages, one file each."""

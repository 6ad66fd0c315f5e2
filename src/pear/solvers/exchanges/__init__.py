"""Exchanges of constraints for sparse programs, compiled: from a warm start to the solution, sample by sample."""

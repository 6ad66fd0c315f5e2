"""The active-set solver for GPUs: one launch of a kernel solves a whole batch."""

"""An active-set solver for GPUs: one kernel for the whole batch."""

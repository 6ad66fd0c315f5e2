"""An exact active-set solver for the CPU, compiled."""

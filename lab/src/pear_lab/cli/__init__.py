"""The commands of the laboratory. ``pear`` finds the ``app`` of bench, report, reproduce and stress by entry points."""

"""The commands of the laboratory: in each module ``app``, which ``pear`` finds through an entry point."""

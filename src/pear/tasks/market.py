"""An error message for imports of ``pear.tasks.market``, which moved to pear-lab; kept for one release."""

raise ImportError("pear.tasks.market is now pear_lab.tasks.market; run pip install pear-lab")

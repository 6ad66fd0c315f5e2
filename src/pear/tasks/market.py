"""Moved to the package pear-lab; this file says so for one release."""

raise ImportError("pear.tasks.market is now pear_lab.tasks.market; run pip install pear-lab")

"""Moved to the package pear-lab; this file says so for one release."""

raise ImportError("pear.data is now pear_lab.data; run pip install pear-lab")

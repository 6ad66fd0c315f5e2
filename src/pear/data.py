"""An error message for imports of ``pear.data``, which moved to the package pear-lab; kept for one release."""

raise ImportError("pear.data is now pear_lab.data; run pip install pear-lab")

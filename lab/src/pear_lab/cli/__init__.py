"""The commands of the laboratory.

The modules ``bench``, ``report``, ``reproduce`` and ``stress`` each have an ``app`` of typer. The command ``pear``
finds these apps by entry points.
"""

"""The examinations of ``pear.advise``, one file for each. An examination takes a ``Subject`` and adds ``Findings``."""

"""The examinations of ``pear.advise``. Each is a function ``advise_on_…`` that adds its findings to a ``Findings``."""

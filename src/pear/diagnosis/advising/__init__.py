"""The examinations of ``pear.advise``. Each is a function ``advise_on_…`` that adds sentences to ``Findings``."""

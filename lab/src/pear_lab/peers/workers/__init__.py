"""What runs in a peer's own environment: ``worker.py``, which measures, and one file per peer, which is measured.

Nothing here imports from pear, and nothing but the standard library and numpy is imported before it is needed.
"""

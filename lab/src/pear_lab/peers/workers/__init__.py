"""The code that runs in the environments of peers: ``worker.py``, which measures, and a file for each peer.

No file imports anything of PEAR. Packages other than numpy are imported only when they are needed.
"""

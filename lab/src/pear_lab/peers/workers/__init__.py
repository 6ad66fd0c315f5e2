"""The code that runs in the environments of peers: ``worker.py``, which measures, and a file for each peer.

No file imports anything of PEAR, and packages other than numpy are imported when they are needed.
"""

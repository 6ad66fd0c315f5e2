"""The comparison of all methods on the public tasks: its runs, its statistics and its page."""

"""Random problems of every awkward kind, and a judge of the answers that shares nothing with the library."""

"""What can go wrong with a peer."""

from __future__ import annotations

from pear.errors import PearError


class PeerError(PearError, RuntimeError):
    """A peer that is not known, cannot be installed, or failed while it was measured."""


class PeerTimeoutError(PeerError):
    """A peer that took too long, so that larger problems need not be tried."""

"""Other libraries that do what is measured here, each in an environment of its own and driven through files."""

from pear.bench.peers.environment import cache_folder, interpreter
from pear.bench.peers.registry import PEERS, Peer, PeerError, PeerTimeoutError, choose
from pear.bench.peers.subprocess_runner import Measured, measure

__all__ = [
    "PEERS",
    "Measured",
    "Peer",
    "PeerError",
    "PeerTimeoutError",
    "cache_folder",
    "choose",
    "interpreter",
    "measure",
]

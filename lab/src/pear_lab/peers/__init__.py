"""Other libraries that do what is measured here, each in an environment of its own: measured, or as a layer."""

from pear_lab.peers.environment import cache_folder, interpreter
from pear_lab.peers.layer import PeerLayer
from pear_lab.peers.registry import PEERS, Peer, PeerError, PeerTimeoutError, choose
from pear_lab.peers.subprocess_runner import Measured, measure

__all__ = [
    "PEERS",
    "Measured",
    "Peer",
    "PeerError",
    "PeerLayer",
    "PeerTimeoutError",
    "cache_folder",
    "choose",
    "interpreter",
    "measure",
]

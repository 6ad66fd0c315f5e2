"""Other libraries that do what is measured here, each in an environment of its own: measured, or as a layer."""

from pear_lab.peers.peer_environment import cache_folder, interpreter
from pear_lab.peers.peer_layer import PeerLayer
from pear_lab.peers.peer_table import PEERS, Peer, PeerError, PeerTimeoutError, choose
from pear_lab.peers.subprocess_runner import PeerMeasurement, measure

__all__ = [
    "PEERS",
    "Peer",
    "PeerError",
    "PeerLayer",
    "PeerMeasurement",
    "PeerTimeoutError",
    "cache_folder",
    "choose",
    "interpreter",
    "measure",
]

"""Other libraries, each in a virtual environment of its own: to be measured, or used as a layer."""

from pear_lab.peers.peer_environment import cache_folder, interpreter
from pear_lab.peers.peer_table import PEERS, Peer, PeerError, PeerTimeoutError, choose
from pear_lab.peers.worker_process import PeerLayer, PeerMeasurement, measure

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

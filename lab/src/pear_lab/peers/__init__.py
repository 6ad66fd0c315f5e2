"""Other libraries, each in a virtual environment of its own: to be measured, or used as a layer."""

from pear_lab.peers.peer_environment import peer_cache_folder, peer_interpreter
from pear_lab.peers.peer_table import PEERS, Peer, PeerError, PeerTimeoutError, choose_peers
from pear_lab.peers.worker_process import PeerLayer, PeerMeasurement, measure_peer

__all__ = [
    "PEERS",
    "Peer",
    "PeerError",
    "PeerLayer",
    "PeerMeasurement",
    "PeerTimeoutError",
    "choose_peers",
    "measure_peer",
    "peer_cache_folder",
    "peer_interpreter",
]

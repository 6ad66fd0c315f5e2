"""Other libraries, here called peers. They are measured, or used as a layer, each in its own virtual environment."""

from pear_lab.peers.peer_environment import peer_cache_folder, peer_interpreter
from pear_lab.peers.peer_layer import PeerLayer
from pear_lab.peers.peer_measurement import PeerMeasurement, measure_peer
from pear_lab.peers.peer_table import PEERS, Peer, PeerError, PeerTimeoutError, choose_peers

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

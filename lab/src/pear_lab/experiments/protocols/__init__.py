"""How runs are trained and measured: a protocol for linear programs, one for tables of data, and one for portfolios."""

from collections.abc import Mapping

from pear_lab.experiments.protocols.lp_protocol import LPProtocol
from pear_lab.experiments.protocols.portfolio_protocol import PortfolioProtocol
from pear_lab.experiments.protocols.protocol import Protocol, TrainingResult
from pear_lab.experiments.protocols.tabular_protocol import TabularProtocol
from pear_lab.experiments.run_spec import RunSpec

PROTOCOLS: Mapping[str, Protocol] = {
    "shortest_path": LPProtocol(),
    "knapsack": LPProtocol(),
    "building": TabularProtocol(),
    "energy": TabularProtocol(),
    "portfolio": PortfolioProtocol(),
}
"""Protocols by the name of the task."""


def protocol_of(run: RunSpec) -> Protocol:
    """Return the protocol of a run: its own, or that of its task."""
    return PROTOCOLS[run.task] if run.protocol is None else run.protocol


__all__ = ["PROTOCOLS", "Protocol", "TrainingResult", "protocol_of"]

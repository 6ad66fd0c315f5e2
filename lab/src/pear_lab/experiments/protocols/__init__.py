"""How runs are trained and measured: one protocol for linear programs, one for tables, one for portfolios."""

from collections.abc import Mapping

from pear_lab.experiments.protocols.base import Protocol, Trained
from pear_lab.experiments.protocols.lp import LP
from pear_lab.experiments.protocols.portfolio import PortfolioProtocol
from pear_lab.experiments.protocols.tabular import Tabular

PROTOCOLS: Mapping[str, Protocol] = {
    "shortest_path": LP(),
    "knapsack": LP(),
    "building": Tabular(),
    "energy": Tabular(),
    "portfolio": PortfolioProtocol(),
}
"""By task."""

__all__ = ["PROTOCOLS", "Protocol", "Trained"]

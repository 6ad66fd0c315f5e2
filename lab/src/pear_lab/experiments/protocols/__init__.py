"""How runs are trained and measured: one protocol for linear programs, one for tables, one for portfolios."""

from collections.abc import Mapping

from pear_lab.experiments.protocols.lp_protocol import LP
from pear_lab.experiments.protocols.portfolio_protocol import PortfolioProtocol
from pear_lab.experiments.protocols.protocol import Protocol, TrainingResult
from pear_lab.experiments.protocols.tabular_protocol import Tabular

PROTOCOLS: Mapping[str, Protocol] = {
    "shortest_path": LP(),
    "knapsack": LP(),
    "building": Tabular(),
    "energy": Tabular(),
    "portfolio": PortfolioProtocol(),
}
"""By task."""

__all__ = ["PROTOCOLS", "Protocol", "TrainingResult"]

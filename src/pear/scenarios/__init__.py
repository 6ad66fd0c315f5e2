"""Two-stage decisions: some variables are decided now, the others when it is known which scenario comes true."""

from pear.scenarios.error_spread import ErrorSpread, predict_spread
from pear.scenarios.generation import ResidualScenarios, quantile_scenarios, residual_scenarios
from pear.scenarios.reduction import reduce
from pear.scenarios.risk import CVaR, Expectation, WorstCase
from pear.scenarios.scenario_loss import LastScenarios, ScenarioLoss
from pear.scenarios.stochastic import ScenarioDecisions, Stochastic

__all__ = [
    "CVaR",
    "ErrorSpread",
    "Expectation",
    "LastScenarios",
    "ResidualScenarios",
    "ScenarioDecisions",
    "ScenarioLoss",
    "Stochastic",
    "WorstCase",
    "predict_spread",
    "quantile_scenarios",
    "reduce",
    "residual_scenarios",
]

"""Two-stage decisions under scenarios: some variables are decided now, the others once a scenario has come true."""

from pear.scenarios.risk import CVaR, Expectation, WorstCase
from pear.scenarios.scenario_loss import LastScenarios, ScenarioLoss
from pear.scenarios.stochastic import ScenarioDecisions, Stochastic

__all__ = ["CVaR", "Expectation", "LastScenarios", "ScenarioDecisions", "ScenarioLoss", "Stochastic", "WorstCase"]

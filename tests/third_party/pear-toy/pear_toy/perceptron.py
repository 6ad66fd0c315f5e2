"""The perceptron loss: how much the forecast prefers its own decision to the best one."""

from pear.losses import DecisionLoss


class PerceptronLoss(DecisionLoss):
    """The mean of ĉᵀz*(c) − ĉᵀz*(ĉ), with the opposite sign for maximisation."""

    def value(self, predicted, true, ids):
        worse = self.best(true, ids) - self.decide(predicted, ids)
        return self.problem.sign * (predicted * worse).sum(1).mean()

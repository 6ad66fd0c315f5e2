"""A loss: how much better the forecast thinks its own decision is than the right one."""

from pear.losses import DecisionLoss


class PerceptronLoss(DecisionLoss):
    """The mean of ĉᵀz*(c) − ĉᵀz*(ĉ), the sign turned for maximisation."""

    def value(self, predicted, true, ids):
        worse = self.best(true, ids) - self.decide(predicted, ids)
        return self.problem.sign * (predicted * worse).sum(1).mean()

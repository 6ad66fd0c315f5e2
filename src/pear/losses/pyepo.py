"""``PyEPOLoss``: the losses of the package PyEPO on PEAR's problems and solvers; needs the extra ``baselines``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any, Literal

from torch import Tensor, nn

from pear.decisions.solve import solve
from pear.errors import MissingExtraError, ProblemError
from pear.losses.decision_loss import Decide, DecisionLoss
from pear.problem import Problem
from pear.problem.tensor_conversion import to_batch_tensor

_ARGUMENTS = ("pred_cost", "true_cost", "true_sol", "true_obj")


def pyepo_model(problem: Problem, decide: Decide | None = None) -> Any:
    """Make a ``pyepo.model.opt.optModel`` that uses PEAR's solvers, for PyEPO's losses, datasets and metrics.

    PyEPO solves one sample after another. PEAR's own losses solve a whole batch at once and are faster.

    Args:
        problem: the decision problem, with a linear objective and the same constraints for every sample.
        decide: maps costs (B, n) to best decisions (B, n); ``pear.solve`` on ``problem`` if omitted.

    Raises:
        MissingExtraError: PyEPO is not installed.
    """
    return _pyepo_model_class()(problem, decide)


class PyEPOLoss(DecisionLoss):
    """A loss of PyEPO with the interface of PEAR's losses, ``loss(predicted, true, keys=None)``.

    ``PyEPOLoss(task.problem, pyepo.func.SPOPlus, task.decide)``, for example, trains like ``SPOPlusLoss``.

    A PyEPO loss has some of the arguments ``pred_cost``, ``true_cost``, ``true_sol`` and ``true_obj``: the predicted
    and the true costs, and the best decisions and their values. It is called with those that it has. Some losses (DBB,
    DPO, I-MLE) return decisions z instead of a loss. The value then is the mean of ``|cᵀz − cᵀz*(c)|``, with the true
    costs c and the best decisions z*(c). A loss with a pool of solutions (NCE, learning to rank) gets its data set from
    ``make``, as in ``lambda model: NCE(model, dataset=optDataset(model, X, C))``.

    Args:
        problem: the decision problem, with a linear objective and the same constraints for every sample.
        make: a loss class of ``pyepo.func``, or any function from a PyEPO model to such a loss.
        options: keyword arguments of ``make``. ``cost_unit`` does not affect them.
        decide, mse_weight, cost_unit: as for ``DecisionLoss``.

    Attributes:
        loss: the loss of PyEPO.
        seconds: the time of decisions under "solve". PyEPO's own work is not timed, and "gradient" stays zero.

    Raises:
        MissingExtraError: PyEPO is not installed.
    """

    def __init__(
        self,
        problem: Problem,
        make: Callable[..., nn.Module],
        decide: Decide | None = None,
        mse_weight: float = 0.0,
        cost_unit: float | Literal["auto"] = "auto",
        **options: Any,
    ) -> None:
        super().__init__(problem, decide, mse_weight, cost_unit)
        self.loss = make(pyepo_model(problem, self.decide), **options)
        parameters = inspect.signature(self.loss.forward).parameters.values()
        self._asks = [p.name for p in parameters if p.default is p.empty]
        strange = [name for name in self._asks if name not in _ARGUMENTS]
        if strange:
            raise ProblemError(
                f"{type(self.loss).__name__} asks for {', '.join(strange)}, which costs and decisions do not "
                f"tell; a loss may ask for {', '.join(_ARGUMENTS)}"
            )

    def value(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the mean of PyEPO's loss, or of the regrets of the decisions that it returns."""
        return self._call_pyepo(predicted, true, ids).mean()

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute PyEPO's loss of each sample, (B,); the PyEPO loss must have ``reduction="none"``."""
        result = self._call_pyepo(predicted, true, ids)
        if result.ndim == 0:
            raise ProblemError(f"{type(self.loss).__name__} returns a mean; pass reduction='none' to weigh samples")
        return result.reshape(len(true))

    def _call_pyepo(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Call PyEPO's loss; if it returns decisions, compute their regrets (B, 1)."""
        best = self.best(true, ids)
        value = (true * best).sum(1, keepdim=True)
        given = {"pred_cost": predicted, "true_cost": true, "true_sol": best, "true_obj": value}
        result: Tensor = self.loss(**{name: given[name] for name in self._asks})
        if result.shape == predicted.shape:
            return ((true * result).sum(1, keepdim=True) - value).abs()
        return result  # the loss of each sample, or its mean


@cache
def _pyepo_model_class() -> Any:
    """Make the subclass of PyEPO's ``optModel`` on first use, because PyEPO is optional."""
    try:
        from pyepo import EPO
        from pyepo.model.opt import optModel
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"PyEPO's losses need the package {error.name}, not installed here; run pip install 'pear-dfl[baselines]'"
        ) from error

    class PearModel(optModel):  # type: ignore[misc, unused-ignore]
        """A ``Problem`` with the interface of PyEPO's models."""

        # PyEPO uses an attribute ``problem`` for itself, so that ours has another name
        def __init__(self, pear_problem: Problem, decide: Decide | None = None) -> None:
            if pear_problem.batch is not None:
                raise ProblemError("PyEPO knows one set of constraints for all samples; this problem has one for each")
            if pear_problem.is_curved:
                raise ProblemError("PyEPO knows linear objectives only; this problem has a curvature or a smooth term")
            self.pear_problem = pear_problem
            self.decide = decide
            self._cost: Tensor | None = None
            super().__init__()
            self.modelSense = EPO.MINIMIZE if pear_problem.sense == "min" else EPO.MAXIMIZE

        def _getModel(self) -> tuple[Problem, range]:  # noqa: N802
            return self.pear_problem, range(self.pear_problem.n)

        @property
        def num_cost(self) -> int:
            return self.pear_problem.n

        def setObj(self, c: Any) -> None:  # noqa: N802
            cost = to_batch_tensor(c).detach()
            if cost.shape != (1, self.pear_problem.n):
                raise ProblemError(f"expected {self.pear_problem.n} costs of one sample; got shape {tuple(cost.shape)}")
            self._cost = cost

        def solve(self) -> tuple[Any, float]:
            if self._cost is None:
                raise ProblemError("set the costs with setObj before solving")
            z = solve(self.pear_problem, self._cost).x if self.decide is None else self.decide(self._cost)
            return z[0].detach().cpu().numpy(), float((self._cost * z.to(self._cost)).sum())

        def relax(self) -> Any:
            return PearModel(self.pear_problem.relaxed())

    return PearModel

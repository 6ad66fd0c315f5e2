"""``LinearEpochs``: epochs of a linear model under ``PEARLoss``, in compiled code instead of the training loop."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from pear.clock import read_clock
from pear.losses import PEARLoss, defaults
from pear.optimality.status import Status
from pear.problem import CostMap
from pear.solvers.active_set.compiled_pass import CompiledPass, regrets_of_compiled_pass
from pear.solvers.active_set.kernel_arrays import (
    Array,
    CompiledRegrets,
    CompiledSolutions,
    SampleCosts,
    new_kernel_regrets,
)
from pear.solvers.active_set.kernel_threads import kernel_threads_for_batch
from pear.solvers.regret_call import RegretCall, RegretCallResults
from pear.train.compiled.epoch_arrays import (
    Adam,
    BatchBuffers,
    CostMapArrays,
    LinearState,
    LossStrengths,
    TrainingSet,
)

_MOMENTS = ("exp_avg", "exp_avg_sq")
_PLAIN: dict[str, Any] = {"weight_decay": 0, "amsgrad": False, "maximize": False, "capturable": False}


class LinearEpochs:
    """Epochs of an ``nn.Linear`` under ``PEARLoss`` with ``torch.optim.Adam``, in compiled code.

    The compiled code changes the parameters and the state of the optimizer in place. A checkpoint can therefore be
    written after any epoch, and the ordinary training loop can go on from there.

    Args:
        model, loss, optimizer: the model, the loss and the optimizer, for which ``supports`` must return True.
        features: (N, p), p features of each of N samples.
        costs: (N, n) true costs; if the loss has a cost map, (N, k), the k true values that it maps to costs.
        batch_size: the number of samples in a step.

    Attributes:
        flat: the number of samples in the last epoch whose regret is positive although its gradient is exactly zero.
    """

    def __init__(
        self, model: nn.Linear, loss: PEARLoss, optimizer: Any, features: Tensor, costs: Tensor, batch_size: int
    ) -> None:
        from pear.train.compiled import epoch_kernel  # imports numba, which takes a moment

        self.kernel = epoch_kernel
        self.model, self.loss, self.optimizer = model, loss, optimizer
        true = loss.times_units(loss.costs(costs, list(range(len(costs)))))
        self.features, self.costs = features.contiguous().numpy(), true.double().contiguous().numpy()
        self.units = loss.times_units(torch.ones(loss.problem.n, dtype=features.dtype)).numpy()
        self._regret: int | None = None  # address of the compiled function
        self.flat = 0.0
        assert isinstance(loss.decider.fused, CompiledPass)
        self.compiled_pass: CompiledPass = loss.decider.fused
        n, rows, p = loss.problem.n, self.compiled_pass.programs.rows, self.compiled_pass.programs.equalities
        size = min(batch_size, len(features))
        costs_room, numbers = (np.zeros((size, n)) for _ in range(2)), [np.zeros(size, np.int64) for _ in range(3)]
        samples, results = SampleCosts(*costs_room, *numbers[:2]), new_kernel_regrets(size, n, p, rows - p)
        team = kernel_threads_for_batch(size, n, rows)
        self.room = BatchBuffers(samples, results, team, numbers[2], np.zeros(3))
        self.cost_map = _linear_cost_map_arrays(loss.cost_map, n, self.features.dtype)
        factor = None if loss.problem.Q is None else self.compiled_pass.shared_factor(loss.chosen_smoothing or 0.0)
        self.factor = np.zeros((0, 0, 0)) if factor is None else factor.numpy()[None]

    @staticmethod
    def supports(model: nn.Module, loss: Any, optimizer: Any, features: Tensor, costs: Tensor) -> bool:
        """Return whether compiled code can replace the training loop for this model, loss, optimizer and samples."""
        if type(model) is not nn.Linear or type(loss) is not PEARLoss or type(optimizer) is not torch.optim.Adam:
            return False
        if loss.recourse_model is not None or getattr(loss.given, "curvature_map", None) is not None:
            return False
        hooks = model._forward_hooks or model._forward_pre_hooks or model._backward_hooks or loss._forward_hooks
        here = all(part.device.type == "cpu" and part.dim() == 2 for part in (features, costs))
        inputs, own = loss.problem.n, [loss.problem.batch]
        if loss.cost_map is not None:
            inputs, own = loss.cost_map.inputs, [*own, loss.cost_map.batch]
        fits = here and features.shape[1] == model.in_features and costs.shape[1] == inputs == model.out_features
        fits = fits and all(batch is None or batch >= len(features) for batch in own)  # a row for every sample
        group = optimizer.param_groups[0]
        mine = [id(q) for q in model.parameters() if q.requires_grad]
        plain = len(optimizer.param_groups) == 1 and [id(q) for q in group["params"]] == mine
        plain = plain and len(mine) == (1 if model.bias is None else 2) and isinstance(group["lr"], float)
        plain = plain and all(group.get(name) == value for name, value in _PLAIN.items())
        fused, smoothing = loss.decider.fused, loss.chosen_smoothing
        if not isinstance(fused, CompiledPass) or smoothing is None or loss.reduction != "mean" or hooks:
            return False
        curved = smoothing > 0 if loss.problem.Q is None else fused.shared_factor(smoothing) is not None
        from pear.compile.jit import PRIVATE  # imports numba; the epoch calls the solver by its address

        return bool(PRIVATE and plain and fits and curved)

    def run(
        self, order: Tensor, step: Callable[[Tensor], Tensor], over_time_cap: Callable[[], bool]
    ) -> tuple[float, int]:
        """Train on the samples once, in this order.

        Args:
            order: (N,) int64 row numbers of the samples.
            step: a function that takes one step of the training loop, and returns the mean loss of the batch. It gets
                the row numbers of a batch that the compiled code cannot solve.
            over_time_cap: a function that returns whether to stop.

        Returns:
            Two numbers: the sum of the losses of all samples seen, and the number of these samples.
        """
        size, count, done, total, seen = len(self.room.samples.at), len(order), 0, 0.0, 0
        self.flat = 0.0
        while done * size < count and not over_time_cap():
            with self.loss.decider.starts.lock:
                reached = self._run_compiled(order, done)
            fresh = min(reached * size, count) - done * size
            total, seen, done = total + float(self.room.totals[0]), seen + fresh, reached
            self.flat += float(self.room.totals[2])
            if done * size < count:
                rows = order[done * size : (done + 1) * size]
                total, seen, done = total + float(step(rows)) * len(rows), seen + len(rows), done + 1
        return total, seen

    def _run_compiled(self, order: Tensor, first: int) -> int:
        """Train in compiled code from batch number ``first`` on; return the number of the first batch that is left."""
        loss, lam, began = self.loss, self.loss.chosen_smoothing, read_clock()
        assert lam is not None
        self.room.totals[:] = 0.0
        kept = self.compiled_pass.all_samples(len(self.features), lam)
        if kept is None:
            return first
        P, slots, table, default = kept
        state = self._state()
        steps = int(state[0]["step"])
        group = self.optimizer.param_groups[0]
        decay, square_decay = group["betas"]
        adam = Adam(group["lr"], decay, square_decay, group["eps"], steps)
        own, failed = loss.problem.batch is not None, self._failed(lam)
        samples = self.features, self.costs, self.units, order.numpy(), slots, own, failed.numpy() != 0
        data = TrainingSet(*samples, table, default, self.cost_map, self.factor)
        how = LossStrengths(loss.injection, loss.current_guidance, defaults.DECAY)
        if self._regret is None:  # the types of the arguments stay the same
            self._regret = self.kernel.epoch_regret_address(P, data, self.room)
        model = self._model(state)
        reached = int(self.kernel.run_epoch_kernel(self._regret, P, data, how, model, adam, self.room, first))
        loss.step(reached - first)
        for part in state:
            part["step"].fill_(steps + reached - first)
        loss.seconds["solve"] += read_clock() - began
        self._record(order, table.best.x, failed, first, reached)
        return reached

    def _failed(self, lam: float) -> Tensor:
        """Return a status for each sample, (N,) int8: that of its failure if training leaves it out, otherwise 0.

        If the loss masks failures, training leaves out the samples that are known to fail under their true costs, and
        thus for every forecast. ``lam`` is the smoothing λ of the loss.
        """
        keys: list[Hashable] = list(range(len(self.costs)))
        costs = torch.from_numpy(self.costs)
        known = self.loss.decider.known_failures("true", costs, lam, keys, {})
        mask = known is not None and self.loss.on_failure == "mask"
        return known if mask and known is not None else torch.zeros(len(keys), dtype=torch.int8)

    def _record(self, order: Tensor, best: Array, failed: Tensor, first: int, reached: int) -> None:
        """Add batches to the counts of the loss. After a complete epoch, record the last batch as the loss's last call.

        Args:
            order: (N,) the row numbers in the order of the epoch.
            best: the best decisions, with a row for each row of the table of warm starts.
            failed: (N,) the result of ``_failed``.
            first: the number of the first batch to record.
            reached: the number of the first batch that is not done.
        """
        size = len(self.room.samples.at)
        fresh, reused = order[first * size : reached * size], int(self.room.totals[1])
        if reached * size < len(order):  # the buffers hold the next batch, which the training loop does at once
            self.loss.count(len(fresh), reused)
            return
        keys, lam = order[(reached - 1) * size :], self.loss.chosen_smoothing
        status, solved = failed[keys], (failed[keys] == 0).nonzero()[:, 0]
        some = slice(len(solved))
        assert lam is not None
        predicted, _, _, slots = (array[some].copy() for array in self.room.samples)
        outcome = CompiledSolutions._make(part[some].copy() for part in self.room.results.outcome)
        parts = regrets_of_compiled_pass(
            CompiledRegrets(outcome, *(part[some].copy() for part in self.room.results[1:])), best[slots]
        )
        costs, true = torch.from_numpy(predicted), torch.from_numpy(self.costs)[keys]
        if len(solved) < len(keys):  # the kernel has not forecast for failed samples
            masked = RegretCallResults.of_failures(
                torch.where(status == Status.INFEASIBLE, status, 0), status, self.loss.problem.n
            )
            masked.put(solved, parts)
            parts, costs = masked, torch.zeros_like(true).index_copy(0, solved, costs)
        self.loss.record(RegretCall(costs, true, lam, self.loss.injection, keys.tolist()), parts)
        self.loss.count(len(fresh) - len(keys), reused - int(parts.reused.sum()))

    def _state(self) -> list[dict[str, Tensor]]:
        """Return Adam's state for the weight and the bias.

        A state that is missing is created in the way in which Adam creates it before its first step.
        """
        parameters = [q for q in (self.model.weight, self.model.bias) if q is not None]
        for parameter in parameters:
            state = self.optimizer.state[parameter]
            if not state:
                state["step"] = torch.tensor(0.0)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return [self.optimizer.state[parameter] for parameter in parameters]

    def _model(self, state: list[dict[str, Tensor]]) -> LinearState:
        """Return the arrays that ``run_epoch_kernel`` changes in place: weights, running means of Adam, and gradients.

        ``state`` is the result of ``_state``.
        """
        weight = self.model.weight.detach().numpy()
        n, kind = len(weight), weight.dtype
        bias = [] if self.model.bias is None else [self.model.bias.detach(), *(state[1][k] for k in _MOMENTS)]
        rows = [part.numpy()[None] for part in bias] or [np.zeros((0, n), kind)] * 3
        mean, square = (state[0][name].numpy() for name in _MOMENTS)
        slope = np.zeros_like(weight), np.zeros((2, n), kind)
        return LinearState(weight, rows[0], mean, square, rows[1], rows[2], *slope)


def _linear_cost_map_arrays(cost_map: CostMap | None, n: int, kind: Any) -> CostMapArrays:
    """Return a cost map as arrays for ``run_epoch_kernel``; all arrays are empty without a cost map.

    Args:
        cost_map: the cost map, or None.
        n: the number of costs.
        kind: the dtype of the model.
    """
    if cost_map is None:
        none, room = np.zeros(0, np.int64), np.zeros(0, kind)
        return CostMapArrays(none, none, np.zeros(0), np.zeros((1, 0)), room, room, np.zeros(0))
    rows = sparse.csr_array(sparse.eye_array(n) if cost_map.M is None else cost_map.M)
    start, column = (part.astype(np.int64) for part in (rows.indptr, rows.indices))
    entry, inputs = rows.data.astype(np.float64), cost_map.inputs
    known = np.ascontiguousarray(np.atleast_2d(cost_map.known.numpy()))
    return CostMapArrays(start, column, entry, known, np.zeros(inputs, kind), np.zeros(n, kind), np.zeros(inputs))

"""The choice of the device on which decisions are made, if costs and problem are on different devices.

A GPU takes about the same time for one sample as for a thousand. The time of a CPU core is proportional to the number
of samples. Small batches on a GPU are therefore copied to the CPU and decided there; for large batches the problem is
copied to the GPU. A problem that the user has put on a GPU stays there. Results are copied back to the device of the
costs.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from pear.optimality.tensor_record import TensorRecord
from pear.problem import Model, Problem
from pear.problem.model import problem_of_model
from pear.solvers.backend_registry import choose_backend

logger = logging.getLogger("pear")

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")
Decidable = TypeVar("Decidable", Problem, Model, Problem | Model)

# Microseconds, measured on an NVIDIA H200 and on one core; docs/speed.md has the tables. The choice assumes one core,
# so that it depends neither on the machine nor on its load; more cores only make the CPU faster.
GPU_STEP = 2_000.0
"""The microseconds of one step of a loss or layer on a GPU, if its programs fit a kernel. Measured: 1.1 to 2.9 ms for 1
to 512 samples of random costs; 5.9 ms for 32 samples in a training on paths. One core with warm starts takes 1.1 ms for
the latter."""
GPU_PIPELINE = 25_000.0
"""The microseconds of a batch of quadratic programs in the pipeline on a GPU. Measured: 21 to 42 ms for 64 samples."""
CPU_ENTRY, CPU_ROWS = 0.02, 10
"""One core takes about CPU_ENTRY · (n + rows) · (rows + CPU_ROWS) microseconds for a sample. Measured times, and in
brackets those of the formula: paths through a 5×5 grid 25 (45), portfolios of 100 assets 37 (22), assignments of 12
workers 100 (114), paths through a 12×12 grid 1,200 (1,257), 100 variables and 30 rows 250 (104)."""

_copies: WeakKeyDictionary[Problem | Model, dict[torch.device, Any]] = WeakKeyDictionary()


def estimate_device_times(problem: Problem, samples: int, fused: bool) -> tuple[float, float]:
    """Estimate the times that one CPU core and a GPU take to decide a batch.

    Args:
        problem: the problem, not a model.
        samples: the number of samples.
        fused: whether a loss or layer with curvature decides the batch. On a GPU, one kernel can do this if the
            programs are small enough.

    Returns:
        The time of the CPU core and the time of the GPU, in microseconds.
    """
    rows = sum(side.shape[-1] for side in (problem.b, problem.h) if side is not None)
    core = samples * CPU_ENTRY * (problem.n + rows) * (rows + CPU_ROWS)
    return core, GPU_STEP if fused and choose_backend("qp").fits_gpu(problem.n, rows) else GPU_PIPELINE


def choose_device(
    problem: Problem | Model, home: torch.device, samples: int, fused: bool = False
) -> tuple[torch.device, str]:
    """Choose the device on which decisions are made, for costs on another device than the problem.

    Args:
        problem: the problem, or a model with it.
        home: the device of the costs.
        samples: the number of samples that are decided in one call.
        fused: as for ``estimate_device_times``.

    Returns:
        The device, and a sentence with the reason.
    """
    plain = problem_of_model(problem)
    own = plain.device
    if own.type != "cpu":
        return own, f"decisions for costs on {home} are made on {own}, where the problem is"
    kind = f"costs on {home}" if home.type != "cuda" else _kind_decided_on_cpu(problem, fused)
    if kind:
        return own, f"decisions for {kind} are made on the CPU, and results go back to {home}"
    fused = fused and importlib.util.find_spec("triton") is not None  # the kernels are written in Triton
    core, gpu = estimate_device_times(plain, samples, fused)
    by_core, by_gpu = _describe_decision_time(core), _describe_decision_time(gpu)
    about = f"one core takes about {by_core} for {samples:,} samples and {home} {by_gpu}"
    if core <= gpu:
        return own, f"decisions for costs on {home} are made on the CPU: {about}"
    return home, f"decisions are made on {home}, with a copy of the problem: {about}"


def _kind_decided_on_cpu(problem: Problem | Model, fused: bool) -> str:
    """Return the kind of a problem, in words, if problems of its kind are always decided on the CPU; otherwise "".

    Solvers of sparse and integer programs run only on the CPU, and the user's φ may contain tensors on the CPU. Linear
    programs and models with recourse have no GPU kernel: 240 paths through a 5×5 grid take 9 ms on a core and 1,170 ms
    on a GPU. ``fused`` is that of ``estimate_device_times``; a program with curvature is not a linear program.
    """
    plain = problem_of_model(problem)
    kinds = {
        "a sparse problem": plain.is_sparse,
        "an integer problem": plain.is_integer,
        "a problem with a smooth term": plain.phi is not None,
        "a model with recourse": isinstance(problem, Model) and problem.constraint_map is not None,
        "a linear program": not fused and plain.Q is None,
    }
    return next((kind for kind, applies in kinds.items() if applies), "")


def move_problem_to_device(problem: Decidable, device: torch.device) -> Decidable:
    """Return the problem or model on a device. Each copy is made once, and lives as long as the original."""
    plain = problem_of_model(problem)
    if plain.device == device:
        return problem
    copies = _copies.setdefault(problem, {})
    if device not in copies:
        moved = plain.to(device)
        copies[device] = replace(problem, problem=moved) if isinstance(problem, Model) else moved
    found: Decidable = copies[device]
    return found


def bring_to_decision_device(problem: Decidable, costs: Tensor) -> tuple[Decidable, Tensor]:
    """Return the problem and costs (B, n) on one device.

    If they are on different devices, ``choose_device`` chooses one of the two, and the choice is logged.
    """
    if problem_of_model(problem).device == costs.device:
        return problem, costs
    device, note = choose_device(problem, costs.device, len(costs))
    logger.info(note)
    return move_problem_to_device(problem, device), costs.to(device)


def on_chosen_device(function: Function) -> Function:
    """Decorate a function of a problem and costs so that the two may be on different devices.

    The function gets both on the device that ``choose_device`` chooses. The result is copied back to the device of the
    costs. The costs are the first tensor among the arguments after the problem.
    """

    @wraps(function)
    def call(problem: Any, *args: Any, **kwargs: Any) -> Any:
        costs = find_device_argument(args, kwargs)
        if costs is None or not isinstance(problem, (Problem, Model)):
            return function(problem, *args, **kwargs)
        home = costs.device
        if problem_of_model(problem).device == home:
            return function(problem, *args, **kwargs)
        device, note = choose_device(problem, home, count_samples_for_device(costs))
        logger.debug(note)
        args, kwargs = move_arguments_to_device(args, kwargs, device)
        return move_result_to_device(function(move_problem_to_device(problem, device), *args, **kwargs), home)

    return cast(Function, call)


def find_device_argument(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor | None:
    """Return the costs, which are the first tensor among the arguments of a call; None if there is no tensor."""
    if args and isinstance(args[0], Tensor):
        return args[0]
    return next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)


def count_samples_for_device(costs: Tensor) -> int:
    """Return the number of samples in costs (B, n) or (n,)."""
    return len(costs) if costs.dim() > 1 else 1


def move_arguments_to_device(args: Any, kwargs: Any, device: torch.device) -> tuple[Any, Any]:
    """Return the arguments of a call with all tensors on a device. A tensor that occurs twice is copied once."""
    moved: dict[int, Tensor] = {}

    def move(value: Any) -> Any:
        return moved.setdefault(id(value), value.to(device)) if isinstance(value, Tensor) else value

    return tuple(map(move, args)), {name: move(value) for name, value in kwargs.items()}


def move_result_to_device(result: Result, device: torch.device) -> Result:
    """Return the result of a call with its tensors on a device.

    Args:
        result: a tensor, a record of tensors, or a tuple of tensors and records.
        device: the device.
    """
    found: Any = result
    if isinstance(found, (Tensor, TensorRecord)):
        found = found.to(device)
    elif isinstance(found, tuple):
        parts = (move_result_to_device(part, device) for part in found)
        found = type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)
    moved: Result = found
    return moved


def _describe_decision_time(microseconds: float) -> str:
    """Return a time in microseconds as text, in milliseconds with two significant digits."""
    return f"{microseconds / 1000:.2g} ms"

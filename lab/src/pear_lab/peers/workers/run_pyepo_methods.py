"""Training steps of the losses of PyEPO, forward and backward, with the fastest of some open solvers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

PACKAGES = ("pyepo", "ortools", "pyomo", "highspy", "torch", "numpy")
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}
WARM_UP = 3
"""The number of first steps that do not count."""
TRIED, PASSES = 4, 5
"""The number of samples that each solver decides, and how often, before the fastest solver is chosen."""


def prepare_pyepo_method_steps(data: dict[str, Any], device: str) -> Callable[[], dict[str, Any]]:
    """Return a function that times training steps of each loss, and returns their seconds and gradients.

    A step is a forward and a backward pass on one of R batches. All losses use the model that decides the first samples
    fastest. The steps of a loss end early if they exceed a time limit.

    Args:
        data: arrays by name. The program has A, b, G, h, lb, ub, ``integer`` and ``sense``, and ``grid`` if it is a
            path through a grid. ``true`` and ``predicted`` (R, B, n) are the costs of the batches. ``losses`` is a JSON
            object that maps our name of a method to PyEPO's name of the class and its options. ``backend`` is PyEPO's
            name of a modelling library. ``solvers`` and ``integer_solvers`` are the names of solvers to try for
            continuous and for integer programs, separated by commas. ``clock`` is "wall" or "processor", and
            ``seconds`` is the time limit.
        device: "cpu".
    """
    import torch

    if str(data["backend"]) == "pyomo":
        import_module("highspy")  # must be imported before OR-Tools, which has functions of the same names
    models = _list_pyepo_models(data)
    tried = {name: _time_pyepo_decision(make(), data["true"][0, :TRIED]) for name, make in models.items()}
    fastest = min(tried, key=lambda name: tried[name])
    model = models[fastest]()
    R, B, n = data["true"].shape
    true, predicted = (torch.from_numpy(data[name]) for name in ("true", "predicted"))
    flat = true.reshape(R * B, n)
    dataset = import_module("pyepo.data.dataset").optDataset(model, flat, flat)  # solves under the true costs
    best = torch.as_tensor(np.asarray(dataset.sols)).float().reshape(R, B, n)
    value = torch.as_tensor(np.asarray(dataset.objs)).float().reshape(R, B, 1)

    def step() -> dict[str, Any]:
        found: dict[str, Any] = {"solver": fastest, "tried": json.dumps(tried)}
        for name, (kind, options) in json.loads(str(data["losses"])).items():
            loss = _make_pyepo_loss(kind, model, dataset, options)
            known = {"true_cost": true, "true_sol": best, "true_obj": value}
            seconds, gradients = _time_pyepo_steps(loss, predicted, known, data)
            found[f"seconds {name}"], found[f"gradient {name}"] = np.array(seconds), np.stack(gradients)
        return found

    return step


def _make_pyepo_loss(kind: str, model: Any, dataset: Any, options: dict[str, Any]) -> Any:
    """Make a loss of PyEPO, with a pool of solutions if its options ask for one."""
    cls = getattr(import_module("pyepo.func"), kind)
    pool = {"dataset": dataset} if "solve_ratio" in options else {}
    return cls(model, processes=1, **options, **pool)


def _time_pyepo_steps(
    loss: Any, predicted: Any, known: dict[str, Any], data: dict[str, Any]
) -> tuple[list[float], list[Any]]:
    """Time a step of a loss on each batch, after some warm-up steps.

    Args:
        loss: the loss.
        predicted: (R, B, n) predicted costs of R batches.
        known: ``true_cost`` (R, B, n), ``true_sol`` (R, B, n) and ``true_obj`` (R, B, 1): the true costs, the best
            decisions and their values.
        data: as for ``prepare_pyepo_method_steps``, of which only ``clock`` and ``seconds`` are used.

    Returns:
        The seconds and the gradient (B, n) of each step.
    """
    import inspect

    now, began = CLOCKS[str(data["clock"])], time.perf_counter()
    asked = [name for name in inspect.signature(loss.forward).parameters if name != "pred_cost"]
    seconds: list[float] = []
    gradients = []
    for r in (*warm_up_steps(len(predicted)), *range(len(predicted))):
        cost = predicted[r].clone().requires_grad_()
        start = now()
        result = loss(cost, *(known[name][r] for name in asked))
        if result.ndim:  # decisions, whose regret is the loss
            true, best = known["true_cost"][r], known["true_sol"][r]
            result = ((true * result).sum(1) - (true * best).sum(1)).abs().mean()  # exactly 0 for the best decision
        result.backward()
        seconds.append(now() - start)
        gradients.append(cost.grad.numpy())
        if len(seconds) > WARM_UP and time.perf_counter() - began > float(data["seconds"]):
            break
    return seconds[WARM_UP:], gradients[WARM_UP:]


def warm_up_steps(batches: int) -> list[int]:
    """Return the position of the batch for each warm-up step. The batches take turns."""
    return [k % batches for k in range(WARM_UP)]


def _time_pyepo_decision(model: Any, costs: Any) -> float:
    """Return the processor seconds of one decision in the fastest of some passes over ``costs``."""
    passes = []
    for _ in range(PASSES):
        began = time.process_time()
        for cost in costs:
            model.setObj(cost)
            model.solve()
        passes.append((time.process_time() - began) / len(costs))
    return min(passes)


def _list_pyepo_models(data: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return functions that make the models to be timed, by name.

    For each solver there is a model made from the arrays. There is also a model of PyEPO's own class if PyEPO has a
    class for the program.
    """
    backend = str(data["backend"])
    names = str(data["integer_solvers" if bool(data["integer"]) else "solvers"]).split(",")
    made: dict[str, Callable[[], Any]] = {}
    for name in names:
        own = _find_pyepo_model(data, backend, name)
        if own is not None:
            made[name] = own
        made[f"{name}, compiled"] = partial(_compile_pyepo_model, data, backend, name)
    return made


def _find_pyepo_model(data: dict[str, Any], backend: str, solver: str) -> Callable[[], Any] | None:
    """Return a function that makes PyEPO's own model of a program; None if PyEPO has no class for it."""
    models = import_module("pyepo.model")
    if "grid" in data:
        return lambda: models.shortestPathModel(tuple(map(int, data["grid"])), backend=backend, solver=solver)
    if bool(data["integer"]) and not len(data["b"]):
        return lambda: models.knapsackModel(data["G"], data["h"], backend=backend, solver=solver)
    return None


def _compile_pyepo_model(data: dict[str, Any], backend: str, solver: str) -> Any:
    """Make a model from the arrays of a program, in PyEPO's modelling language."""
    pyepo, dsl = import_module("pyepo"), import_module("pyepo.dsl")
    n = data["true"].shape[2]
    if bool(data["integer"]):
        x = dsl.Variable(n, vtype=pyepo.EPO.BINARY)
    else:
        x = dsl.Variable(n, lb=data["lb"], ub=data["ub"])
    objective = dsl.Maximize if str(data["sense"]) == "max" else dsl.Minimize
    rows = [data["A"] @ x == data["b"]] if len(data["b"]) else []
    rows += [data["G"] @ x <= data["h"]] if len(data["h"]) else []
    return dsl.Problem(objective(dsl.Parameter(n) @ x), rows).compile(backend, solver=solver)


PREPARE = prepare_pyepo_method_steps

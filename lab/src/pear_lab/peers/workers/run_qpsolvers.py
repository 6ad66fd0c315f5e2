"""DAQP, PIQP and OSQP through qpsolvers: the forward pass, one sample after the other in a Python loop."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

PACKAGES = ("qpsolvers", "daqp", "piqp", "osqp", "numpy", "scipy")
ACCURACY = 1e-9
OPTIONS: dict[str, dict[str, Any]] = {
    "daqp": {"primal_tol": ACCURACY, "dual_tol": ACCURACY},
    "piqp": dict.fromkeys(("eps_abs", "eps_rel", "eps_duality_gap_abs", "eps_duality_gap_rel"), ACCURACY),
    "osqp": {"eps_abs": ACCURACY, "eps_rel": ACCURACY, "polishing": True, "max_iter": 10_000},
}
ROWS = {"Q": 2, "G": 2, "h": 1, "A": 2, "b": 1, "lb": 1, "ub": 1}


def prepare_qpsolvers_decisions(data: dict[str, Any], device: str) -> Callable[[], dict[str, Any]]:
    """Return a function that computes the decisions (B, n) of all samples; NaN for a sample without a solution.

    A solver that takes both dense and sparse matrices gets the kind that is faster for the first sample. The matrices
    are made before the clock starts.

    Args:
        data: the arrays that ``worker.py`` describes, and the name of the ``solver`` in qpsolvers.
        device: "cpu".
    """
    qpsolvers: Any = import_module("qpsolvers")
    warnings.simplefilter("ignore")  # a point that is not accurate enough is judged as well
    name, cost = str(data["solver"]), data["cost"]
    kinds = [kind for kind in ("dense", "sparse") if name in getattr(qpsolvers, f"{kind}_solvers")]
    programs = {kind: [_qpsolvers_arrays(data, i, kind) for i in range(len(cost))] for kind in kinds}

    def solve(kind: str, i: int) -> Any:
        x = qpsolvers.solve_qp(q=cost[i], **programs[kind][i], solver=name, **OPTIONS[name])
        return np.full(cost.shape[1], np.nan) if x is None else x

    def seconds(kind: str) -> float:
        solve(kind, 0)
        began = time.perf_counter()
        solve(kind, 0)
        return time.perf_counter() - began

    fastest = min(kinds, key=seconds)
    return lambda: {"decision": np.stack([solve(fastest, i) for i in range(len(cost))])}


def _qpsolvers_arrays(data: dict[str, Any], i: int, kind: str) -> dict[str, Any]:
    """Return the fields of sample ``i`` by the names of qpsolvers, without empty rows.

    Args:
        data: the arrays of all samples.
        i: the number of the sample.
        kind: "dense" or "sparse".
    """
    own = {name: data[name][i] if data[name].ndim > ndim else data[name] for name, ndim in ROWS.items()}
    if kind == "sparse":
        sparse: Any = import_module("scipy.sparse")
        own |= {name: sparse.csc_matrix(own[name]) for name in ("Q", "G", "A")}
    for matrix, limits in (("G", "h"), ("A", "b")):
        if not len(own[limits]):
            own[matrix] = own[limits] = None
    return {"P" if name == "Q" else name: value for name, value in own.items()}


PREPARE = prepare_qpsolvers_decisions

"""Import of PyEPO models, from the model of a solver that they contain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from pear.errors import DataError
from pear.optional_packages import import_optional
from pear.presolving.row_program import Array
from pear.problem.cost_map import CostMap
from pear.problem.importers.gurobi_model import gurobi_arrays
from pear.problem.importers.highs_model import highs_model_arrays
from pear.problem.importers.linear_map import linear_map
from pear.problem.importers.model_arrays import ModelArrays, Names
from pear.problem.importers.pyomo_model import pyomo_arrays
from pear.problem.importers.row_limits import RowLimits
from pear.problem.model import Model


def from_pyepo(optmodel: Any, known: Names = None) -> Model:
    """Import a linear, quadratic or integer program from a ``pyepo.model.opt.optModel``.

    The matrices are read from the model that the class builds (``_model``) with Gurobi, Pyomo or HiGHS, or from the
    arrays A, b, G, h, l and u of the classes for MPAX. A few calls of ``optmodel.setObj`` show which variable has which
    cost, so that a class may set only some of its costs (``c_pred_index``), or one cost for several variables.

    Args:
        optmodel: an object of one of PyEPO's classes, or of a class of yours. Predictions have ``optmodel.num_cost``
            columns.
        known: names of the right-hand sides and bounds that are known for every sample and passed with every call: the
            name of a row for its right-hand side, ``x.lb`` and ``x.ub`` for the bounds of a variable x.

    Raises:
        DataError: ``optmodel`` is another object, has no matrices, or sets costs that are not linear in the argument of
            ``setObj``.
        ProblemError: the matrices cannot be imported, because bounds cross or the objective is not convex.
        MissingExtraError: PyEPO is not installed.
    """
    pyepo = import_optional("pyepo.model.opt", "baselines", "a model of PyEPO")
    if not isinstance(optmodel, pyepo.optModel):
        came = optmodel.__name__ if isinstance(optmodel, type) else type(optmodel).__name__
        raise DataError(f"expected an object of a PyEPO optModel class, got {came}; make one: {came}(…)")
    where = f"the PyEPO model {type(optmodel).__name__}"
    if getattr(optmodel, "_model", None) is None and hasattr(optmodel, "G"):
        return _pyepo_mpax_model_arrays(where, optmodel).model(known=known)
    k = int(optmodel.num_cost)
    start = _pyepo_model_arrays(where, optmodel, np.zeros(k))
    M = linear_map(lambda costs: _pyepo_model_arrays(where, optmodel, costs).costs - start.costs, k)
    if M is None:
        raise DataError(
            f"{where}: setObj does not set costs that are linear in its argument; expected cost = M c + known: give "
            "the matrices with pear.Problem, and M and known with pear.CostMap"
        )
    _check_pyepo_model_sense(where, optmodel, start.sense, M)
    if M.shape[0] == k and not start.costs.any() and (sparse.eye_array(k) != M).nnz == 0:
        return start.model(known=known)
    columns = sparse.csc_array(M)
    at = [columns.indices[columns.indptr[i] : columns.indptr[i + 1]] for i in range(k)]
    names = [start.variables[own[0]] if len(own) == 1 else f"cost[{i}]" for i, own in enumerate(at)]
    return start.model(cost_map=CostMap(M, start.costs, names), known=known)


def _pyepo_model_arrays(where: str, optmodel: Any, costs: Array) -> ModelArrays:
    """Return the arrays of the solver's model inside ``optmodel``, after ``optmodel.setObj(costs)``."""
    optmodel.setObj(costs)
    inner: Any = getattr(optmodel, "_model", None)
    roots = {kind.__module__.split(".")[0] for kind in type(inner).__mro__}
    if "gurobipy" in roots:
        inner.update()
        return replace(gurobi_arrays(inner), where=where)
    if "pyomo" in roots:
        return replace(pyomo_arrays(inner, import_optional("pyomo.environ", "pyomo", where))[0], where=where)
    if "highspy" in roots:
        made = highs_model_arrays(where, inner.getModel())
        return replace(made, variables=made.variables or tuple(f"x{i}" for i in range(len(made.costs))))
    raise DataError(
        f"{where} holds {'no model' if inner is None else f'a {type(inner).__module__}.{type(inner).__name__}'}, from "
        "which no matrices can be read; expected one of gurobipy, pyomo or highspy: write it to an MPS file and use "
        "pear.from_mps, or give the matrices: pear.Problem(A=…, b=…, G=…, h=…, lb=…, ub=…, integer=…)"
    )


def _check_pyepo_model_sense(where: str, optmodel: Any, sense: str, M: sparse.csr_array) -> None:
    """Check that PyEPO's ``modelSense`` fits the sense of the solver's model.

    The senses may differ only if ``setObj`` gives the solver's model the negated costs.

    Args:
        where: the name of the PyEPO model in messages.
        optmodel: the PyEPO model.
        sense: "min" or "max", the sense of the solver's model.
        M: (n, k) the map from the argument of ``setObj`` to the costs of the solver's model.
    """
    told = "max" if optmodel.modelSense < 0 else "min"
    if told != sense and not (M.data < 0).all():
        raise DataError(
            f"{where}: modelSense says {told}imise, and the model inside {sense}imises; set modelSense to what it does"
        )


def _pyepo_mpax_model_arrays(where: str, optmodel: Any) -> ModelArrays:
    """Return the arrays of a PyEPO model for MPAX, whose attributes hold ``Az = b``, ``Gz ≥ h`` and ``l ≤ z ≤ u``."""
    A, b, G, h, low, high = (
        np.asarray(getattr(optmodel, name), dtype=float) for name in ("A", "b", "G", "h", "l", "u")
    )
    names = (*(f"A[{i}]" for i in range(len(b))), *(f"G[{i}]" for i in range(len(h))))
    matrix = sparse.csr_array(np.concatenate([A.reshape(len(b), len(low)), G.reshape(len(h), len(low))]))
    rows = RowLimits(matrix, np.concatenate([b, h]), np.concatenate([b, np.full(len(h), np.inf)]), names)
    Q = getattr(optmodel, "Q", None)
    curvature = None if Q is None else sparse.csr_array(np.asarray(Q, dtype=float))
    return ModelArrays(
        where, rows, np.zeros(len(low)), low, high, curvature, "max" if optmodel.modelSense < 0 else "min"
    )

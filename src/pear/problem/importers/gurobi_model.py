"""Import of Gurobi models (``gurobipy``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from pear.errors import DataError
from pear.optional_packages import import_optional
from pear.problem.importers.model_arrays import ModelArrays, Names
from pear.problem.importers.row_limits import RowLimits
from pear.problem.model import Model

# Parts of a model that cannot be imported, by the attribute that counts them.
_REFUSED = {
    "NumSOS": "SOS constraints",
    "NumQConstrs": "quadratic constraints",
    "NumGenConstrs": "general constraints (max, abs, indicators and the like)",
    "NumPWLObjVars": "variables with a piecewise-linear objective",
    "NumScenarios": "scenarios",
}


def from_gurobipy(
    model: Any, predicted: Names = None, rows: Names = None, recourse: Any = None, known: Names = None
) -> Model:
    """Import a linear, quadratic or integer program from a ``gurobipy.Model``, without a solve.

    Pending changes of the model are processed (``model.update()``). If Gurobi has added a variable to a row with two
    limits (``addRange``), the variable is left out, and the row gets its two limits back.

    Args:
        model: a ``gurobipy.Model``.
        predicted: what is predicted. The name of a variable means its cost, the name of a row its right-hand side, and
            a pair (row, variable) the coefficient of the variable in the row. The predicted values are the costs, then
            the right-hand sides, then the coefficients, each in the order of this list. Other numbers keep the values
            of the model. By default all costs that are not in ``known`` are predicted.
        rows: names of further rows whose right-hand sides are predicted. Every row with a predicted number must be an
            equality or have one limit. With ``rows``, ``predicted`` may be an empty list, so that no cost is predicted.
        recourse: the rule for decisions that violate the true rows, needed to train if rows are predicted: a
            dictionary from names of rows to prices per unit of violation, a ``pear.Penalty`` or a ``pear.Projection``.
            An equality may have a pair of prices, (too little, too much). ``Model.with_recourse`` adds one later.
        known: names of the numbers that are known for every sample and passed with every call. The name of a row means
            its right-hand side. The name of a variable means its cost, or its value if the variable is fixed; ``x.lb``
            and ``x.ub`` mean the bounds of x. ``demand`` means all of ``demand[0]``, ``demand[1]``, ….

    Raises:
        DataError: ``model`` is another object, has no variables, or has parts that cannot be imported: SOS, quadratic,
            general or lazy constraints, semi-continuous variables, scenarios, piecewise-linear or several objectives.
        ProblemError: bounds cross, the objective is not convex, or a name is wrong or comes twice.
        MissingExtraError: gurobipy is not installed.
    """
    gurobipy = import_optional("gurobipy", "gurobi", "a model of Gurobi")
    if not isinstance(model, gurobipy.Model):
        raise DataError(f"expected a gurobipy.Model, got {type(model).__name__}; of a file, use pear.from_mps")
    model.update()
    return gurobi_arrays(model).model(predicted, limits=rows, recourse=recourse, known=known)


def gurobi_arrays(model: Any) -> ModelArrays:
    """Return the arrays of a ``gurobipy.Model``, which must have no pending changes."""
    where = f"the Gurobi model {model.ModelName}" if model.ModelName else "the Gurobi model"
    _check_gurobi_model(where, model)
    right, senses = np.array(model.getAttr("RHS"), dtype=float), np.array(model.getAttr("Sense"), dtype=str)
    rows = RowLimits(
        sparse.csr_array(model.getA()) if len(right) else sparse.csr_array((0, model.NumVars)),
        np.where(senses == "<", -np.inf, right),
        np.where(senses == ">", np.inf, right),
        tuple(model.getAttr("ConstrName")),
    )
    arrays = ModelArrays(
        where,
        rows,
        np.array(model.getAttr("Obj"), dtype=float),
        np.array(model.getAttr("LB"), dtype=float),
        np.array(model.getAttr("UB"), dtype=float),
        _gurobi_curvature(model) if model.NumQNZs else None,
        "max" if model.ModelSense < 0 else "min",
        np.isin(model.getAttr("VType"), ("B", "I")),
        float(model.ObjCon),
        tuple(model.getAttr("VarName")),
    )
    return _restore_gurobi_ranges(arrays)


def _restore_gurobi_ranges(arrays: ModelArrays) -> ModelArrays:
    """Undo Gurobi's ``addRange``: return the arrays with a row with two limits in place of each equality it has made.

    ``addRange`` writes a row with two limits as an equality with an additional variable, whose bounds hold the limits.
    The variable is called "Rg", followed by the name of the row. It is left out of the result.
    """
    rows, place = arrays.rows, {name: i for i, name in enumerate(arrays.variables)}
    low, high = rows.low.copy(), rows.high.copy()
    columns, added = sparse.csc_array(rows.matrix), []
    for row, name in enumerate(rows.names):
        at = place.get(f"Rg{name}", -1)
        if at < 0 or arrays.costs[at] or low[row] != high[row] or np.diff(columns.indptr)[at] != 1:
            continue
        entry = columns.indptr[at]
        if columns.indices[entry] == row and columns.data[entry] == 1.0:
            low[row], high[row] = low[row] - arrays.ub[at], high[row] - arrays.lb[at]
            added.append(at)
    if not added:
        return arrays
    kept = np.setdiff1d(np.arange(len(arrays.costs)), added)
    return replace(
        arrays,
        rows=RowLimits(sparse.csr_array(rows.matrix[:, kept]), low, high, rows.names),
        costs=arrays.costs[kept],
        lb=arrays.lb[kept],
        ub=arrays.ub[kept],
        Q=None if arrays.Q is None else arrays.Q[kept][:, kept],
        integer=None if arrays.integer is None else arrays.integer[kept],
        variables=tuple(arrays.variables[i] for i in kept),
    )


def _check_gurobi_model(where: str, model: Any) -> None:
    """Check that a Gurobi model has variables, one linear or quadratic objective, and only linear constraints."""
    found = [f"{number} {words}" for name, words in _REFUSED.items() if (number := getattr(model, name))]
    found += [f"{model.NumObj} objectives"] if model.NumObj > 1 else []
    found += ["lazy constraints, which only its callback knows"] if model.Params.LazyConstraints else []
    semi = [v.VarName for v, kind in zip(model.getVars(), model.getAttr("VType"), strict=True) if kind in ("S", "N")]
    found += [f"the semi-continuous variable {semi[0]}"] if semi else []
    if found:
        raise DataError(
            f"{where} has {', '.join(found)}, which cannot be taken; expected one linear or convex quadratic "
            "objective, linear constraints, bounds and integers: write these with linear rows and integer variables"
        )
    if not model.NumVars:
        raise DataError(f"{where} has no variables; add them before it is taken")


def _gurobi_curvature(model: Any) -> sparse.csr_array:
    """Return Q (n, n) of the objective ``½ zᵀQz + cᵀz`` of a Gurobi model."""
    terms, n = model.getObjective(), model.NumVars
    entries = [(terms.getVar1(i).index, terms.getVar2(i).index, terms.getCoeff(i)) for i in range(terms.size())]
    row, column, value = (np.array(part) for part in zip(*entries, strict=True))
    half = sparse.csr_array((value.astype(float), (row, column)), shape=(n, n))
    return sparse.csr_array(half + half.T)

"""Import of HiGHS models (``highspy``). The importer of MPS files uses the same functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from pear.errors import DataError
from pear.optional_packages import import_optional
from pear.problem.importers.model_arrays import ModelArrays, Names
from pear.problem.importers.row_limits import RowLimits
from pear.problem.model import Model


def from_highs(
    model: Any, predicted: Names = None, rows: Names = None, recourse: Any = None, known: Names = None
) -> Model:
    """Import a linear, quadratic or integer program from a model of ``highspy``.

    The model is neither solved nor changed. Variables and rows without names are called x0, x1, … and r0, r1, ….

    Args:
        model: a ``highspy.Highs``, ``HighsModel`` or ``HighsLp``.
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
        DataError: ``model`` is another object, has no variables, or has semi-continuous variables.
        ProblemError: bounds cross, the objective is not convex, or a name is wrong or comes twice.
        MissingExtraError: highspy is not installed.

    Example:
        >>> import highspy
        >>> import pear
        >>> highs = highspy.Highs()
        >>> x, y = highs.addVariable(ub=3.0, obj=-1.0, name="x"), highs.addVariable(ub=4.0, obj=-2.0, name="y")
        >>> row = highs.addConstr(x + y <= 5.0)
        >>> m = pear.from_highs(highs)
        >>> m.problem, pear.solve(m.problem, m.known).x.tolist()
        (Problem(min, n=2, 1 inequality, bounds), [[1.0, 4.0]])
    """
    highspy = import_optional("highspy", "highs", "a model of HiGHS")
    if isinstance(model, highspy.Highs):
        model = model.getModel()
    if isinstance(model, highspy.HighsLp):
        lp, model = model, highspy.HighsModel()
        model.lp_ = lp
    if not isinstance(model, highspy.HighsModel):
        raise DataError(
            f"expected a highspy.Highs, HighsModel or HighsLp, got {type(model).__name__}; of a file, use pear.from_mps"
        )
    name = model.lp_.model_name_
    where = f"the HiGHS model {name}" if name else "the HiGHS model"
    return highs_model_arrays(where, model).model(predicted, limits=rows, recourse=recourse, known=known)


def highs_model_arrays(where: str, model: Any) -> ModelArrays:
    """Return the arrays of a ``HighsModel``; ``where`` is the name of the model or file in messages."""
    lp = model.lp_
    if not lp.num_col_:
        raise DataError(f"{where} has no variables; add them before it is taken")
    if semi := semi_variable_in_highs_model(lp):
        raise DataError(f"{where}: variable {semi}, which cannot be taken; write it with an integer variable and rows")
    names = tuple(lp.row_names_) or tuple(f"r{i}" for i in range(lp.num_row_))
    Q = _highs_model_curvature(model)
    return ModelArrays(
        where,
        RowLimits(sparse.csr_array(_highs_model_matrix(lp)), np.array(lp.row_lower_), np.array(lp.row_upper_), names),
        np.array(lp.col_cost_),
        np.array(lp.col_lower_),
        np.array(lp.col_upper_),
        Q if Q.nnz else None,
        "min" if lp.sense_.name == "kMinimize" else "max",
        _highs_model_integers(lp),
        float(lp.offset_),
        tuple(name or f"x{i}" for i, name in enumerate(lp.col_names_)),
    )


def semi_variable_in_highs_model(lp: Any) -> str:
    """Return a description of the first semi-continuous or semi-integer variable; "" if there is none."""
    names = lp.col_names_ or [f"x{i}" for i in range(lp.num_col_)]
    for name, kind in zip(names, lp.integrality_, strict=False):
        if kind.name not in ("kContinuous", "kInteger"):
            return f"{name} is semi-{kind.name[5:].lower()}"
    return ""


def _highs_model_matrix(lp: Any) -> sparse.csc_array:
    """Return the constraint matrix (rows, n) of a HiGHS model."""
    entries = lp.a_matrix_
    parts = (np.asarray(entries.value_), np.asarray(entries.index_), np.asarray(entries.start_))
    if not lp.num_row_:
        return sparse.csc_array((0, lp.num_col_))
    if entries.format_.name == "kColwise":
        return sparse.csc_array(parts, shape=(lp.num_row_, lp.num_col_))
    return sparse.csc_array(sparse.csr_array(parts, shape=(lp.num_row_, lp.num_col_)))


def _highs_model_curvature(model: Any) -> sparse.csc_array:
    """Return Q (n, n) of the objective ``½ zᵀQz + cᵀz``, with both triangles."""
    n, hessian = model.lp_.num_col_, model.hessian_
    if not hessian.dim_:
        return sparse.csc_array((n, n))
    parts = (np.asarray(hessian.value_), np.asarray(hessian.index_), np.asarray(hessian.start_))
    half = sparse.csc_array(parts, shape=(n, n))
    full = sparse.csc_array(half if hessian.format_.name == "kSquare" else half + sparse.tril(half, -1).T)
    full.eliminate_zeros()
    return full


def _highs_model_integers(lp: Any) -> Any:
    """Return a bool mask (n,) of the integer variables."""
    marks = np.zeros(lp.num_col_, dtype=bool)
    marks[: len(lp.integrality_)] = [kind.name == "kInteger" for kind in lp.integrality_]
    return marks

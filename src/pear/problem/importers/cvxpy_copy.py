"""``CvxpyCopy``: a copy of a CVXPY problem that shows where variables and constraints are in CVXPY's matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pear.problem.importers.cvxpy_leaves import (
    independent_leaf_names,
    leaf_has_structure,
    leaf_sign,
    place_leaf_entries,
    spread_leaf_entries,
)
from pear.problem.importers.cvxpy_names import cvxpy_constraint_name, cvxpy_parameters_in
from pear.problem.importers.cvxpy_tags import TaggedConstraint


@dataclass(frozen=True)
class CvxpyCopy:
    """A continuous copy of a CVXPY problem, in which only predicted and known parameters are still parameters.

    All other parameters become constants, because CVXPY refuses a product of two parameters, but accepts a product of a
    parameter and a constant. The copy is continuous, because CVXPY has no canonical form for some integer problems. The
    original problem is not changed.

    A tag is an additional parameter of the copy. The tag of a variable multiplies the variable in the objective, and so
    shows which columns of CVXPY's matrices belong to the variable. The tag of a constraint is added to its right side,
    and shows which rows belong to the constraint.

    Attributes:
        problem: the copy, without tags.
        predicted: the predicted parameters of the copy.
        known: the known parameters of the copy.
        tags: one tag for each variable, in the shape that the variable has in the copy.
        constraints: all constraints, each with its tag.
        limits: the constraints that contain predicted parameters or have a price.
        tagged: the copy with the tagged constraints, and with ``Σ tag · variable`` added to the objective.
    """

    problem: Any
    predicted: list[Any]
    known: list[Any]
    tags: list[Any]
    constraints: list[TaggedConstraint]
    limits: list[TaggedConstraint]
    tagged: Any

    @classmethod
    def of(cls, problem: Any, predicted: list[Any], known: list[Any], prices: dict[int, Any], cvxpy: Any) -> CvxpyCopy:
        """Make the copy of a problem.

        Args:
            problem: the original problem, which has passed ``check_cvxpy_variables_and_parameters``.
            predicted: the predicted parameters.
            known: the known parameters.
            prices: the prices of constraints, by the number of the constraint.
            cvxpy: the module.
        """
        replaced: dict[int, Any] = {}
        sizes = [len(independent_leaf_names(p)) for p in predicted]
        copies = [
            _copy_cvxpy_leaf(p, cvxpy.Parameter, size, replaced, cvxpy)
            for p, size in zip(predicted, sizes, strict=True)
        ]
        known_copies = [_copy_known_cvxpy_parameter(p, replaced, cvxpy) for p in known]
        for p in problem.parameters():
            if id(p) not in replaced:
                replaced[id(p)] = cvxpy.Constant(p.value)
        tags, terms = [], []
        for v in problem.variables():
            own = _copy_cvxpy_leaf(v, cvxpy.Variable, place_leaf_entries(v)[1], replaced, cvxpy)
            tags.append(cvxpy.Parameter(own.shape, value=np.zeros(own.shape)))
            terms.append(cvxpy.sum(cvxpy.multiply(tags[-1], own)))
        objective = problem.objective.tree_copy(replaced)
        rows = [row.tree_copy(replaced) for row in problem.constraints]
        for row, original in zip(rows, problem.constraints, strict=True):
            if label := getattr(original, "label", None):  # older versions of CVXPY have none
                row.set_label(label)
        constraints = [
            TaggedConstraint.tagging(cvxpy_constraint_name(row, i), row, copies, prices.get(i), cvxpy)
            for i, row in enumerate(rows)
        ]
        limits = [one for i, one in enumerate(constraints) if i in prices or cvxpy_parameters_in(rows[i], copies)]
        tagged = cvxpy.Problem(type(objective)(sum(terms, objective.expr)), [one.constraint for one in constraints])
        return cls(cvxpy.Problem(objective, rows), copies, known_copies, tags, constraints, limits, tagged)


def _copy_cvxpy_leaf(leaf: Any, kind: Any, size: int, replaced: dict[int, Any], cvxpy: Any) -> Any:
    """Return the copy of a variable or parameter, and store the expression that replaces the original.

    Args:
        leaf: the original variable or parameter.
        kind: ``cvxpy.Variable`` or ``cvxpy.Parameter``.
        size: the number of entries of the copy if the original is declared symmetric, diagonal or sparse, because the
            copy is then a vector. Otherwise the copy has the shape of the original, and ``size`` is not used.
        replaced: the expressions of the copied problem that replace originals, by the ids of the originals.
        cvxpy: the module.
    """
    structured = leaf_has_structure(leaf)
    made = kind((size,) if structured else leaf.shape, name=leaf.name(), **_sign_of_cvxpy_copy(leaf))
    if kind is cvxpy.Parameter:
        made.value = np.zeros(made.shape)
    replaced[id(leaf)] = spread_leaf_entries(made, leaf, cvxpy) if structured else made
    return made


def _copy_known_cvxpy_parameter(parameter: Any, replaced: dict[int, Any], cvxpy: Any) -> Any:
    """Return the copy of a known parameter, and store in ``replaced`` the expression that replaces the original.

    In its matrices CVXPY replaces a parameter that is declared PSD, NSD or symmetric by a new one, for which the
    importer could set no values. The copy is therefore a plain parameter, and an expression around it declares the
    structure.
    """
    shape, given = parameter.shape, parameter.attributes
    plain = cvxpy.Parameter(shape, name=parameter.name(), value=np.zeros(shape), **_sign_of_cvxpy_copy(parameter))
    replaced[id(parameter)] = plain
    if given.get("PSD"):
        replaced[id(parameter)] = cvxpy.psd_wrap(plain)
    elif given.get("NSD"):
        replaced[id(parameter)] = -cvxpy.psd_wrap(-plain)
    elif given.get("symmetric"):
        replaced[id(parameter)] = cvxpy.symmetric_wrap(plain)
    return plain


def _sign_of_cvxpy_copy(leaf: Any) -> dict[str, bool]:
    """Return CVXPY's keyword arguments ``nonneg`` and ``nonpos`` that declare the sign of a variable or parameter."""
    return {"nonneg": leaf_sign(leaf) > 0, "nonpos": leaf_sign(leaf) < 0}

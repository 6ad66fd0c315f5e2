"""Checks of the fields of a problem. Each error message names the given value, the expected value and a remedy."""

from __future__ import annotations

import difflib
import math
import operator
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.matrix import MATRICES
from pear.problem.problem_fields import NO_BOUND, drop_huge_bound_fields, is_field_per_sample
from pear.problem.tensor_conversion import tensor_shape

PAIRS = (("A", "b", "Az = b"), ("G", "h", "Gz ≤ h"))
SENSES = {word: word[:3] for word in ("min", "minimize", "minimum", "max", "maximize", "maximum")}
SHAPES = {
    "Q": "(n, n) or per sample (N, n, n)",
    "A": "(p, n) or per sample (N, p, n)",
    "b": "(p,) or per sample (N, p)",
    "G": "(m, n) or per sample (N, m, n)",
    "h": "(m,) or per sample (N, m)",
    "lb": "a number, (n,) or per sample (N, n)",
    "ub": "a number, (n,) or per sample (N, n)",
}


def check_sense(sense: Any) -> None:
    """Check that ``sense`` is "min" or "max". For a similar word, the error message suggests one of the two."""
    if sense in ("min", "max"):
        return
    close = difflib.get_close_matches(sense.lower(), SENSES, n=1) if isinstance(sense, str) else []
    raise ProblemError(
        f"sense must be 'min' or 'max', got {sense!r}" + (f"; did you mean '{SENSES[close[0]]}'?" if close else "")
    )


def check_field_dimensions(fields: Mapping[str, Tensor]) -> None:
    """Check that every field, by its name, has the right number of dimensions, and that Q is square."""
    for name, value in fields.items():
        allowed = (2, 3) if name in MATRICES else (0, 1, 2) if name in ("lb", "ub") else (1, 2)
        if value.ndim not in allowed:
            raise ProblemError(f"{name} must have shape {SHAPES[name]}; got {tensor_shape(value)}")
        if name == "Q" and value.shape[-1] != value.shape[-2]:
            raise ProblemError(f"Q must be square, {SHAPES['Q']}; got {tensor_shape(value)}")


def infer_n_from_fields(fields: Mapping[str, Tensor], marks: bool | Tensor, n: Any) -> int:
    """Return the number of variables n, on which the fields, ``integer`` and the argument ``n`` must agree.

    Args:
        fields: the fields, by name.
        marks: ``integer`` in the form that ``read_integer_field`` returns.
        n: the number that the user passed, or None.

    Raises:
        ProblemError: the fields, ``integer`` and ``n`` do not agree, none of them gives the number of variables, or the
            number is not a positive integer.
    """
    found = [] if n is None else [(f"n={n}", _read_n_field(n))]
    found += [
        (f"{name} of shape {tensor_shape(fields[name])}", fields[name].shape[-1])
        for name in ("Q", "A", "G", "lb", "ub")
        if name in fields and fields[name].ndim
    ]
    if isinstance(marks, Tensor) and marks.dtype == torch.bool:
        found.append((f"integer of shape {tensor_shape(marks)}", len(marks)))
    if not found:
        raise ProblemError("the number of variables cannot be told from the fields given; pass n=")
    first, size = found[0]
    for other, theirs in found[1:]:
        if theirs != size:
            raise ProblemError(
                f"{other} has {theirs} variables but {first} has {size}; the last dimension of Q, A, G, lb, ub and "
                "of the mask integer must be n"
            )
    if size < 1:
        raise ProblemError(f"{first} has {size} variables; a problem needs at least one")
    return size


def check_field_columns(fields: Mapping[str, Tensor], n: int) -> None:
    """Check that the fields that a call passes in place of the problem's have one column for each variable."""
    for name in ("Q", "A", "G", "lb", "ub"):
        if name in fields and fields[name].shape[-1] != n:
            raise ProblemError(
                f"{name} of shape {tensor_shape(fields[name])} has {fields[name].shape[-1]} variables but the "
                f"problem has {n}; expected {SHAPES[name]} with n = {n}"
            )


def check_field_rows(fields: Mapping[str, Tensor]) -> None:
    """Check that A comes with b and G with h, and that each row has one right-hand side."""
    for left, right, formula in PAIRS:
        for here, missing in ((left, right), (right, left)):
            if here in fields and missing not in fields:
                raise ProblemError(
                    f"{here} of shape {tensor_shape(fields[here])} was given without {missing}; the constraint is "
                    f"{formula}: pass {missing} of shape {SHAPES[missing]}, or leave out {here}"
                )
        if left in fields and fields[left].shape[-2] != fields[right].shape[-1]:
            raise ProblemError(
                f"{left} of shape {tensor_shape(fields[left])} has {fields[left].shape[-2]} rows but {right} of shape "
                f"{tensor_shape(fields[right])} has {fields[right].shape[-1]} entries; {formula} needs one entry for "
                "each row"
            )


def infer_batch_from_fields(fields: Mapping[str, Tensor]) -> int | None:
    """Return the number of samples N, on which all fields with one entry per sample must agree.

    Returns:
        N; None if all fields are shared by all samples.
    """
    found = [
        (f"{name} of shape {tensor_shape(v)}", v.shape[0]) for name, v in fields.items() if is_field_per_sample(name, v)
    ]
    for other, theirs in found[1:]:
        if theirs != found[0][1]:
            raise ProblemError(
                f"{other} has {theirs} samples but {found[0][0]} has {found[0][1]}; fields given per sample must have "
                "the same first dimension; leave it out where all samples share the field"
            )
    return found[0][1] if found else None


def check_cost_and_fields(
    cost: Any,
    n: int,
    batch: int | None,
    overrides: Mapping[str, Tensor],
    name: str = "cost",
    other: str = "the problem",
) -> None:
    """Check that the cost of a call is a real tensor (B, n), and that all other data of the call are for B samples.

    Args:
        cost: the cost.
        n: the number of variables.
        batch: the number of samples of the problem, which must be B; None if its fields are shared by all samples.
        overrides: the fields that the call passes in place of the problem's, by name.
        name: the name of ``cost`` in error messages.
        other: the name, in error messages, of the object that ``batch`` belongs to.
    """
    if not isinstance(cost, Tensor):
        raise ProblemError(f"{name} must be a tensor of shape (B, {n}), got {type(cost).__name__}; use torch.as_tensor")
    if cost.dtype.is_complex:
        raise ProblemError(f"{name} must hold real numbers, got type {str(cost.dtype).removeprefix('torch.')}")
    if cost.ndim != 2 or cost.shape[1] != n:
        raise ProblemError(f"{name} must have shape (B, {n}), one row for each sample; got {tensor_shape(cost)}")
    if batch is not None and batch != len(cost):
        raise ProblemError(
            f"{name} has {len(cost)} samples but {other} has {batch}; select the same samples with "
            "problem[index], or name them with keys= where a loss or layer takes it"
        )
    for field, value in overrides.items():
        if is_field_per_sample(field, value) and value.shape[0] != len(cost):
            raise ProblemError(
                f"{field} of shape {tensor_shape(value)} has {value.shape[0]} samples but {name} has {len(cost)}; give "
                "one for each sample, or leave out the first dimension to share it"
            )


def check_field_values(fields: Mapping[str, Any]) -> None:
    """Check that no field holds NaN. Only lb, ub and h may hold infinity, with the sign that means "no limit"."""
    absent = {"lb": -math.inf, "ub": math.inf, "h": math.inf}
    for name, value in fields.items():
        if value.is_sparse:
            if not value.isfinite():
                raise ProblemError(f"{name} holds NaN or infinity; it may hold finite numbers: correct its entries")
            continue
        good = torch.isfinite(value)
        if name in absent:
            good |= value == absent[name]
        if not bool(good.all()):
            at = (~good).nonzero()[0].tolist()
            allowed = f"finite numbers, or {absent[name]:+} where there is none" if name in absent else "finite numbers"
            entry = f"{name}{at}" if at else name
            raise ProblemError(f"{entry} is {value[tuple(at)].item()}; {name} may hold {allowed}: correct this entry")


def check_bound_fields(fields: Mapping[str, Tensor]) -> None:
    """Check that no lower bound is above its upper bound."""
    if "lb" not in fields or "ub" not in fields:
        return
    crossed = fields["lb"] > fields["ub"]
    lower, upper = (fields[name].expand(crossed.shape) for name in ("lb", "ub"))
    if bool(crossed.any()):
        at = tuple(crossed.nonzero()[0].tolist())
        where = f"variable {at[-1]}" + (f" of sample {at[0]}" if len(at) == 2 else "")
        raise ProblemError(
            f"lb > ub at {where}: {lower[at].item():g} > {upper[at].item():g}; no point lies between them: "
            "swap or correct the bounds"
        )


def warn_of_huge_bound_fields(fields: Mapping[str, Tensor]) -> None:
    """Warn about finite bounds and entries of h that are so large that they count as absent."""
    left = drop_huge_bound_fields({name: v for name, v in fields.items() if isinstance(v, Tensor)})
    counts = {name: int((v.isinf() & ~fields[name].isinf()).sum()) for name, v in left.items()}
    found = [f"{count} in {name}" for name, count in counts.items() if count]
    if found:
        warnings.warn(
            f"bounds of {NO_BOUND:g} and more are taken as no bound ({', '.join(found)}); write inf to say so",
            stacklevel=3,
        )


def _read_n_field(n: Any) -> int:
    """Convert n to an int, after a check that it is a positive integer."""
    try:
        size = operator.index(n)
    except TypeError:
        size = 0
    if size < 1 or isinstance(n, bool):
        raise ProblemError(f"n must be a positive integer, got {n!r}")
    return size

"""The tables behind a ``Diagnosis``; pandas is imported when the first one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pear.diagnosis.reasons import reason
from pear.errors import MissingExtraError, ProblemError
from pear.losses.regret import TINY

if TYPE_CHECKING:
    import pandas

    from pear.diagnosis.diagnosis import Diagnosis

_OF_SAMPLES = ("sample", "regret", "share", "best", "squared_error", "tangent", "normal", "margin", "pieces", "why")
_FLAGS = ("degenerate", "zero_gradient", "attributed")
_OF_GROUPS = ("samples", "mean_regret", "normalized_regret", "tangent_share", "dearest_value")
_TAKEN = frozenset([*_OF_SAMPLES, *_FLAGS, *_OF_GROUPS])


def share(part: NDArray[Any], whole: NDArray[Any]) -> float:
    """The sum of a part by that of the whole, where both are known; NaN of nothing."""
    known = np.isfinite(part) & np.isfinite(whole)
    total = float(whole[known].sum())
    return float(part[known].sum()) / total if total > 0 else float("nan")


def column_of_groups(name: str) -> str:
    """What groups are called, so that no other column of a table is: "group regret" of those named "regret"."""
    return f"group {name}" if name in _TAKEN else name


def samples(found: Diagnosis) -> pandas.DataFrame:
    """One row a sample."""
    total = found.regret.sum()
    columns = {
        "regret": found.regret,
        "share": found.regret / total if total > 0 else np.zeros_like(found.regret),
        "best": found.best,
        "squared_error": found.squared_error,
        "tangent": found.tangent,
        "normal": found.normal,
        "margin": found.margin,
        "pieces": found.pieces,
        "degenerate": found.degenerate,
        "zero_gradient": found.zero_gradient,
        "attributed": found.attributed,
    }
    grouped = {} if found.groups is None else {found.grouped_by: found.groups}
    return _frame({**grouped, **columns}, index="sample")


def values(found: Diagnosis) -> pandas.DataFrame:
    """One row a predicted value, the dearest first."""
    error = found.predicted - found.true
    squared = (error**2).mean(0)
    cost = np.nansum(found.attribution, axis=0)
    total = cost.sum()
    table = _frame(
        {
            "value": list(found.names),
            "cost": cost,
            "share": cost / total if total > 0 else np.zeros_like(cost),
            "bias": error.mean(0),
            "mean_squared_error": squared,
            "share_of_squared_error": squared / squared.sum() if squared.any() else squared,
            "worst_sample": np.nan_to_num(found.attribution, nan=-np.inf).argmax(0),
        }
    )
    return table.sort_values("cost", ascending=False, kind="stable", ignore_index=True)


def constraints(found: Diagnosis) -> pandas.DataFrame:
    """One row a constraint, in the order of the problem."""
    return _frame(
        {
            "constraint": list(found.constraint_names),
            "kind": list(found.constraint_kinds),
            "binding": found.binding,
            "best_binding": found.best_binding,
            "shadow_price": found.shadow_price,
            "best_shadow_price": found.best_shadow_price,
        }
    )


def by_group(found: Diagnosis) -> pandas.DataFrame:
    """One row a group, the dearest first."""
    if found.groups is None:
        raise ProblemError("no groups were given; pass pear.diagnose(…, groups=labels or dates)")
    labels, at = np.unique(found.groups, return_inverse=True)
    total = found.regret.sum()
    rows = []
    for i, label in enumerate(labels):
        own = at == i
        lost = found.regret[own].sum()
        parts = np.nansum(found.attribution[own], axis=0)
        rows.append(
            {
                found.grouped_by: label,
                "samples": int(own.sum()),
                "regret": lost,
                "share": lost / total if total > 0 else 0.0,
                "mean_regret": lost / own.sum(),
                "normalized_regret": lost / (np.abs(found.best[own]).sum() + TINY),
                "tangent_share": share(found.tangent[own], found.squared_error[own]),
                "dearest_value": found.names[int(parts.argmax())] if lost > 0 else "",
            }
        )
    table = _frame({name: [row[name] for row in rows] for name in rows[0]})
    return table.sort_values("regret", ascending=False, kind="stable", ignore_index=True)


def worst(found: Diagnosis, count: int) -> pandas.DataFrame:
    """The samples that lose most."""
    if not isinstance(count, int | np.integer) or count < 1:
        raise ProblemError(f"worst takes the number of samples to show, 1 or more; got {count!r}")
    order = np.argsort(-found.regret, kind="stable")[:count]
    table = samples(found).loc[order, :]
    table["why"] = [reason(found, int(i)) for i in order]
    return table


def _frame(columns: dict[str, Any], index: str | None = None) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError(
            "tables need pandas; install it with: pip install 'pear-dfl[sklearn]'. Every number is an array of the "
            "diagnosis, too"
        ) from error
    table = pandas.DataFrame(columns)
    if index is not None:
        table.index.name = index
    return table

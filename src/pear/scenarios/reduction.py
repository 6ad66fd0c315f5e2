"""``reduce``: reduces many scenarios to few scenarios with weights, by k-means."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.tensor_conversion import to_float64_tensor
from pear.setting_checks import check_count_setting

_ROUNDS = 100  # the largest number of Lloyd's iterations; far fewer are needed


def reduce(
    values: Any, count: int, weights: Any = None, keep: Literal["mean", "one"] = "mean", seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Reduce scenarios by k-means: a cluster of similar scenarios becomes one scenario with the weight of the cluster.

    The means of the clusters keep the mean over all scenarios, but shorten the tails of the distribution, because a
    rare scenario is averaged with its neighbours. A scenario drawn from each cluster keeps the tails long, and unlike
    in a draw from all scenarios, every cluster is represented. Distances are Euclidean, with each value in units of its
    standard deviation over the scenarios.

    Args:
        values: (B, N, k) N scenarios of k values, or (N, k) for one sample.
        count: S, the number of scenarios to return. If there are fewer clusters, some scenarios have weight 0.
        weights: (N,) or (B, N) weights of the N scenarios; equal if omitted.
        keep: "mean" returns the mean of each cluster, "one" a scenario of each cluster, drawn by weight.
        seed: the seed of the first centres, which k-means++ draws, and of the scenarios drawn from clusters.

    Returns:
        Scenarios (B, S, k) and their weights (B, S), which sum to one; (S, k) and (S,) for one sample. Pass them to
        ``Stochastic.solve`` as ``values`` and ``weights``.

    Example:
        >>> scenarios, weights = reduce([[0.0], [0.2], [9.0], [0.1]], 2)
        >>> scenarios.flatten().sort().values.round(decimals=3).tolist(), weights.sort().values.tolist()
        ([0.1, 9.0], [0.25, 0.75])
    """
    if keep not in ("mean", "one"):
        raise ProblemError(f"keep must be 'mean' or 'one'; got {keep!r}")
    given = to_float64_tensor("values", values)
    single = given.ndim == 2
    given = given[None] if single else given
    if given.ndim != 3 or not given.shape[1]:
        raise ProblemError(f"values must have shape (B, N, k) or (N, k); got {tuple(given.shape)}")
    count = check_count_setting("count", count)
    B, N, _ = given.shape
    p = torch.ones(N, dtype=torch.float64) if weights is None else to_float64_tensor("weights", weights)
    if p.shape not in ((N,), (B, N)) or not bool((p >= 0).all()) or not bool((p.sum(-1) > 0).all()):
        raise ProblemError(
            f"weights must be {N} numbers a sample, not negative and not all zero; got shape {tuple(p.shape)}"
        )
    p = (p / p.sum(-1, keepdim=True)).expand(B, N)
    generator = torch.Generator().manual_seed(seed)
    found = [
        _reduce_by_clusters(one, weight, min(count, N), keep, generator) for one, weight in zip(given, p, strict=True)
    ]
    scenarios, shares = (torch.stack(parts) for parts in zip(*found, strict=True))
    if count > N:  # the last scenario is repeated with weight 0
        scenarios = torch.cat([scenarios, scenarios[:, -1:].expand(-1, count - N, -1)], 1)
        shares = torch.nn.functional.pad(shares, (0, count - N))
    return (scenarios[0], shares[0]) if single else (scenarios, shares)


def _reduce_by_clusters(
    values: Tensor, weight: Tensor, count: int, keep: str, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Reduce the scenarios of one sample to S scenarios.

    Args:
        values: (N, k) N scenarios of k values.
        weight: (N,) the weights of the scenarios.
        count: S, at most N.
        keep: as for ``reduce``.
        generator: draws the first centres and the scenarios.

    Returns:
        Scenarios (S, k) and the weights (S,) of their clusters.
    """
    spread = values.std(0, correction=0)
    places = values / torch.where(spread > 0, spread, 1.0)
    centres = places[_draw_reduction_centres(places, weight, count, generator)]
    nearest = torch.cdist(places, centres).argmin(1)
    for _ in range(_ROUNDS):
        share = weight.new_zeros(count).index_add(0, nearest, weight)
        sums = torch.zeros_like(centres).index_add(0, nearest, weight[:, None] * places)
        centres = torch.where(share[:, None] > 0, sums / share[:, None].clamp(min=1e-300), centres)
        moved = torch.cdist(places, centres).argmin(1)
        if torch.equal(moved, nearest):
            break
        nearest = moved
    share = weight.new_zeros(count).index_add(0, nearest, weight)
    if keep == "one":
        odds = torch.zeros(count, len(values), dtype=torch.float64)
        odds[nearest, torch.arange(len(values))] = weight
        odds[share == 0] = weight  # an empty cluster has weight 0
        return values[torch.multinomial(odds, 1, generator=generator)[:, 0]], share
    sums = values.new_zeros(count, values.shape[1]).index_add(0, nearest, weight[:, None] * values)
    scale = torch.where(spread > 0, spread, 1.0)
    return torch.where(share[:, None] > 0, sums / share[:, None].clamp(min=1e-300), centres * scale), share


def _draw_reduction_centres(places: Tensor, weight: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return the indices (S,) of the scenarios that k-means++ draws as initial centres.

    The first of them is drawn by weight alone. The probability of each further centre is proportional to its weight and
    to its squared distance from the nearest centre so far. If all these products are zero, every scenario is equally
    likely.

    Args:
        places: (N, k) N scenarios of k values, each in units of its standard deviation.
        weight: (N,) weights.
        count: S.
        generator: draws the centres.
    """
    drawn = [int(torch.multinomial(weight, 1, generator=generator))]
    distance = (places - places[drawn[0]]).square().sum(1)
    while len(drawn) < count:
        odds = weight * distance
        odds = odds if bool((odds > 0).any()) else torch.ones_like(weight)
        drawn.append(int(torch.multinomial(odds, 1, generator=generator)))
        distance = torch.minimum(distance, (places - places[drawn[-1]]).square().sum(1))
    return torch.tensor(drawn)

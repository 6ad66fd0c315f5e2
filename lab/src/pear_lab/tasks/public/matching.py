"""Bipartite matching: pairing papers of two groups so that as many pairs as possible cite each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pear.errors import DataError, ProblemError
from pear.problem import Problem
from pear_lab.tasks.public.drawn_samples import DEGENERATE, Array, cut_drawn_samples
from pear_lab.tasks.public.public_task import Drawing, PublicTask, shared_task_forecaster

SIDE = 7
WORDS = 16
_TOPICS = 8
_SIZES = (60, 40, 200)


def matching_problem(side: int) -> Problem:
    """Return the linear program that pairs the nodes of two groups of ``side`` nodes. Each node is in at most one pair.

    There is a variable for each pair, ordered by the node of the first group. All vertices are integral, so that no
    variable has to be declared an integer.

    Example:
        >>> matching_problem(3)
        Problem(max, n=9, 6 inequalities, bounds)
    """
    pairs = np.eye(side * side).reshape(side, side, side * side)
    return Problem(G=np.concatenate([pairs.sum(1), pairs.sum(0)]), h=np.ones(2 * side), lb=0.0, ub=1.0, sense="max")


def draw_matching(seed: int) -> Drawing:
    """Draw papers with topics and words, and the citations between two groups of them.

    A paper has one of eight topics. The paper contains each of 16 words with a probability of 80 % if the word is
    typical of the topic, and of 10 % otherwise. The probability of a citation is 3 %, plus 50 % if two papers share
    their topic, plus 40 % if their topics are one of a few randomly drawn pairs. The features (N, 49, 48) of the 49
    pairs are the words of both papers and the words that they share. The predicted values (N, 49) are 1 for a citation,
    else 0.
    """
    random = np.random.RandomState(seed)
    count = sum(_SIZES)
    used = np.where(random.uniform(size=(_TOPICS, WORDS)) < 0.35, 0.8, 0.1)
    cited = 0.03 + 0.5 * np.eye(_TOPICS) + 0.4 * (random.uniform(size=(_TOPICS, _TOPICS)) < 0.12)
    topics = random.randint(_TOPICS, size=(2, count, SIDE))
    left, right = (random.uniform(size=(count, SIDE, WORDS)) < used[one] for one in topics)
    chance = cited[topics[0][:, :, None], topics[1][:, None, :]]
    links = random.uniform(size=chance.shape) < chance
    return Drawing(
        matching_problem(SIDE),
        cut_drawn_samples(_matching_features(left, right), links.reshape(count, -1).astype(float), _SIZES),
    )


def load_matching(path: str | Path, seed: int = 0, shares: tuple[float, float] = (0.6, 0.2)) -> Drawing:
    """Read graphs, such as parts of Cora, from an ``.npz`` file, and split them at random.

    Args:
        path: a file with ``features`` (N, k, k, p) and values ``links`` (N, k, k) of the pairs in N graphs, each with
            two groups of k nodes.
        seed: the seed of the order of the graphs.
        shares: the shares of the graphs for training and for validation; the rest is for the test.

    Raises:
        DataError: the file has no such arrays.
        ProblemError: there are too few graphs for three parts.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            features, links = (np.asarray(arrays[name], dtype=np.float64) for name in ("features", "links"))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} must be an .npz file with arrays 'features' and 'links': {error}") from error
    if features.ndim != 4 or links.shape != features.shape[:3] or links.shape[1] != links.shape[2]:
        raise DataError(
            f"{path}: expected features (N, k, k, p) and links (N, k, k); got {features.shape} and {links.shape}"
        )
    count, side = links.shape[:2]
    first, second = round(shares[0] * count), round(shares[1] * count)
    if min(first, second, count - first - second) < 1:
        raise ProblemError(f"{count} graphs are too few to be cut by the shares {shares}")
    order = np.random.RandomState(seed).permutation(count)
    flat = features.reshape(count, side * side, -1)[order], links.reshape(count, -1)[order]
    return Drawing(matching_problem(side), cut_drawn_samples(*flat, (first, second, count - first - second)))


def _matching_features(left: Array, right: Array) -> Array:
    """Return the features (N, k², 3q) of all pairs: the words of both papers and their shared words.

    Args:
        left, right: (N, k, q) the words of the k papers of each group, out of q words.
    """
    first, second = np.broadcast_arrays(left[:, :, None, :], right[:, None, :, :])
    joined = np.concatenate([first, second, first * second], axis=-1).astype(float)
    return joined.reshape(len(left), -1, joined.shape[-1])


MATCHING = PublicTask(
    name="matching",
    title="Matching",
    origin=(
        "Wilder, Dilkina & Tambe 2019, Melding the data-decisions pipeline, arXiv 1809.05504; also in Mandi et al. "
        "2024, arXiv 2307.13565"
    ),
    protocol=(
        "Whether two papers cite each other is predicted from their words, and papers of two groups are paired so that "
        "as many pairs as possible cite. The origin has 27 graphs of 50 + 50 papers cut from Cora, 1,433 words, and a "
        "network with a hidden layer. Cora cannot be had here: the graphs are drawn, 7 + 7 papers with 16 words and 8 "
        "topics; 60 train, 40 choose, 200 test. One linear model for all pairs. load_matching reads graphs of your "
        "own. Published numbers belong to Cora and are not comparable."
    ),
    draw=draw_matching,
    forecaster=shared_task_forecaster,
    unsuited=DEGENERATE,
)  # fmt: skip

"""Shortest paths through a 5×5 grid with polynomial costs, from Elmachtoub & Grigas 2022 and PyEPO's notebook 03."""

from __future__ import annotations

from functools import partial

from pear.tasks import shortest_path
from pear_lab.tasks.public.public_task import Drawing, PublicTask, Published

TEST_SAMPLES = 10_000
"""The number of test samples of Elmachtoub & Grigas."""

NOTEBOOK_SIZES = (1000, 250, 1000)
NOTEBOOK_REGRETS = {
    "aimle": 7.24, "pfyl": 7.29, "rfwo": 7.40, "spo+": 7.59, "rfyl": 7.79, "ltr-pointwise": 8.47, "nid": 8.90,
    "dpo": 9.88, "nce": 10.29, "imle": 12.07, "pg": 14.16, "dbb": 15.12,
}  # fmt: skip
"""The final test regrets, in percent, of one run of PyEPO's notebook 03."""

_SPO_REGRETS = {
    (100, 0.0): {"spo+": 10.00, "mse": 22.37, "absolute error": 15.43, "random forest": 29.96},
    (100, 0.5): {"spo+": 16.79, "mse": 25.51, "absolute error": 20.90, "random forest": 33.04},
    (1000, 0.0): {"spo+": 4.60, "mse": 15.73, "absolute error": 11.19, "random forest": 9.51},
    (1000, 0.5): {"spo+": 10.66, "mse": 21.38, "absolute error": 16.13, "random forest": 15.16},
}
"""Mean normalised regrets of 50 replications at degree 8, in percent, by number of training samples and noise."""


def draw_spo_paths(seed: int, sizes: tuple[int, int, int], degree: int, noise: float) -> Drawing:
    """Draw samples of a 5×5 grid in float32, and split them in the order of drawing.

    Args:
        seed: the seed of the features, the matrix behind the costs, and the noise.
        sizes: the numbers of samples for training, for validation and for the test.
        degree: the degree of the polynomial.
        noise: the half-width of the interval of noise factors around 1.
    """
    task = shortest_path((5, 5))
    samples = task.samples(sum(sizes), degree=degree, noise=noise, seed=seed)
    return Drawing(task.problem, task.split(samples, sizes))


def _spo_paths_row(size: int, noise: float) -> PublicTask:
    """Make the public task of Elmachtoub & Grigas's paths at degree 8 with ``size`` training samples."""
    where = f"n = {size:,}, degree 8, noise {noise:g}; mean of 50 replications of their repository's file"
    return PublicTask(
        name=f"spo-paths-{size}-noise-{noise:g}",
        title=f"Paths, n = {size:,}, noise {noise:g}",
        origin="Elmachtoub & Grigas 2022, Smart 'Predict, then Optimize', https://arxiv.org/abs/1710.08005",
        protocol=(
            f"5×5 grid, 5 features, degree 8, noise {noise:g}: {size:,} samples train, a quarter more validate, "
            f"{TEST_SAMPLES:,} test. The published methods choose the weight of a lasso penalty of ten by the "
            "validation; here there is none. The whole protocol is in lab/studies/spo_paths_study.py."
        ),
        draw=partial(draw_spo_paths, sizes=(size, size // 4, TEST_SAMPLES), degree=8, noise=noise),
        published=tuple(Published(name, value / 100, where) for name, value in _SPO_REGRETS[size, noise].items()),
    )


_NOTEBOOK = PublicTask(
    name="pyepo-paths",
    title="Paths of PyEPO's notebook 03",
    origin="Tang & Khalil 2024, PyEPO, notebook 03, https://github.com/khalil-research/PyEPO",
    protocol=(
        "5×5 grid, 5 features, degree 4, noise 0.5: 1,000 samples train, 250 validate, 1,000 test. The notebook has no "
        "validation, one seed, and 20 epochs; its numbers are those of one run."
    ),
    draw=partial(draw_spo_paths, sizes=NOTEBOOK_SIZES, degree=4, noise=0.5),
    published=tuple(
        Published(name, value / 100, "notebook 03, final test regret of one run")
        for name, value in NOTEBOOK_REGRETS.items()
    ),
)

PATH_ROWS = (*(_spo_paths_row(size, noise) for size in (100, 1000) for noise in (0.0, 0.5)), _NOTEBOOK)

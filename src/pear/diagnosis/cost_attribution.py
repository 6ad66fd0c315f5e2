"""The attribution of the regret to predicted values, by decisions under costs between the true and predicted ones."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.diagnosis.decision_path import ACCURACY, follow_decision_path
from pear.diagnosis.diagnosis_inputs import DiagnosisInputs


def attribute_cost_errors(
    given: DiagnosisInputs, regret: Tensor, best: Tensor, chosen: Tensor, solver: str
) -> tuple[dict[str, Tensor], list[str]]:
    """Return how much of each sample's regret the error of each predicted value causes.

    Let e be the predicted minus the true values, and M the matrix of the cost map, or the identity if the values are
    the costs. Let z̄ be the mean of the decisions under all costs between the true and the predicted ones
    (``decision_path``), and ẑ the decision under the predicted costs. If the problem minimises, the parts are
    ``e ∘ Mᵀ(z̄ − ẑ)``, where ∘ multiplies entry by entry. If it maximises, the signs are reversed.

    Args:
        given: predicted and true values.
        regret: (B,) the regret of each sample.
        best: (B, n) decisions under the true costs.
        chosen: (B, n) decisions under the predicted costs.
        solver: name of the solver, as in ``pear.solve``.

    Returns:
        The fields ``attribution``, ``attributed``, ``margin`` and ``pieces`` of a ``Diagnosis``, and sentences on the
        samples whose regret is not attributed.
    """
    if not given.problem.has_program and given.problem.is_curved:
        return _no_cost_attribution(
            given,
            "The objective of the oracle is curved, and its decisions are not followed: regret is not attributed.",
        )
    if given.problem.phi is not None:
        return _no_cost_attribution(
            given,
            "The objective has a smooth term φ, under which decisions move along curves: regret is not attributed.",
        )
    path = follow_decision_path(given.problem, given.true_cost, given.predicted_cost, best, chosen, solver)
    gradient = given.problem.sign * (path.mean - chosen)
    if given.cost_map is not None:
        gradient = given.cost_map.pull_back(gradient)
    parts = (given.predicted - given.true) * gradient
    known = path.found & ((parts.sum(1) - regret).abs() <= ACCURACY * path.size)
    notes = []
    if not bool(known.all()):
        notes.append(
            f"The regret of {int((~known).sum())} samples is not attributed: their decisions between truth and "
            "forecast could not be followed to the end."
        )
    attributed = {
        "attribution": torch.where(known[:, None], parts, torch.nan),
        "attributed": known,
        "margin": torch.where(path.found, path.margin, torch.nan),
        "pieces": path.pieces,
    }
    return attributed, notes


def _no_cost_attribution(given: DiagnosisInputs, note: str) -> tuple[dict[str, Tensor], list[str]]:
    """Return a result of ``attribute_cost_errors`` in which no sample is attributed; ``note`` is the reason."""
    nothing, no = torch.full_like(given.true, torch.nan), torch.zeros(len(given.true), dtype=torch.bool)
    return {"attribution": nothing, "attributed": no, "margin": nothing[:, 0], "pieces": no.long()}, [note]

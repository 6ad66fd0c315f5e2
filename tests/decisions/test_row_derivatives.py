"""Derivatives by constraints from the compiled pass, compared with those of the pipeline's reduced systems."""

import pytest
import torch

from pear.decisions.decider import Decider
from pear.problem import Problem
from pear.sensitivity.derivatives import all_derivatives

B, N, P, M = 40, 9, 4, 5
FIELDS = ("cost", "Q", "A", "b", "G", "h", "lb", "ub")


def draw(kind):
    """Return a problem, costs (B, n) and the fields of a call; on the free variables, some rows are dependent."""
    generator = torch.Generator().manual_seed(3)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    A = normal(P, N)
    if kind == "parallel rows":
        A[3] = 2 * A[0] - A[1]
    if kind == "flow":
        A = torch.zeros(P, N, dtype=torch.float64)
        for j, (i, k) in enumerate([(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (0, 3), (1, 0), (2, 1), (3, 2)]):
            A[i, j], A[k, j] = 1.0, -1.0
    inside = torch.rand(N, generator=generator, dtype=torch.float64)
    b = (A @ inside).expand(B, -1) + (0.0 if kind != "random" else 0.01 * normal(B, P))
    G = normal(M, N)
    problem = Problem(Q=torch.diag(0.1 + inside), A=A, b=b[0], G=G, h=G @ inside + 0.1, lb=0.0, ub=1.0)
    fields = {"b": b.clone(), "h": (G @ inside + 0.05).expand(B, -1).clone(), "lb": torch.zeros(B, N).double()}
    fields["ub"] = torch.ones(B, N).double()
    fields["lb"][:, 2] = fields["ub"][:, 2] = inside[2]  # decided already
    return problem, 2 * normal(B, N), fields, normal(B, N)


@pytest.mark.parametrize("kind", ["random", "parallel rows", "flow"])
@pytest.mark.parametrize("keys", [None, list(range(B))])
def test_derivatives_of_the_pass_are_those_of_the_pipeline(kind, keys):
    problem, cost, fields, w = draw(kind)
    decider = Decider(problem, "auto")
    found = decider.decide(cost, 0.0, keys, fields, by_rows=True)
    solved = Decider(problem, "auto").solve(cost, 0.0, None, **fields)
    assert found._fused is not None
    assert bool(solved.solved.all())
    response = found._fused.respond(w)
    assert float(response.good.double().mean()) > 0.9
    for name, ours, theirs in zip(FIELDS, found.derivatives(w, 1), all_derivatives(solved, w, 1), strict=True):
        if name in ("A", "G"):  # these depend on multipliers, which are not unique where rows are dependent
            continue
        ours, theirs = ours(), theirs()
        assert (ours - theirs).abs().max() <= 1e-9 * max(1.0, float(theirs.abs().max())), name


def test_samples_that_the_pass_cannot_differentiate_come_from_the_pipeline(monkeypatch):
    problem, cost, fields, w = draw("random")
    found = Decider(problem, "auto").decide(cost, 0.0, None, fields, by_rows=True)
    expected = [derivative() for derivative in found.derivatives(w, 1)]
    whole = found._fused.respond(w)
    bad = torch.arange(B) % 3 == 0
    spoilt = whole._replace(p=torch.where(bad[:, None], torch.nan, whole.p), good=~bad)
    monkeypatch.setattr(type(found._fused), "respond", lambda self, w: spoilt)
    for name, ours, theirs in zip(FIELDS, found.derivatives(w, 1), expected, strict=True):
        assert (ours() - theirs).abs().max() <= 1e-9 * max(1.0, float(theirs.abs().max())), name

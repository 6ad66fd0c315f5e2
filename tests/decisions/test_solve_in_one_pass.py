"""``pear.solve`` by one call of the compiled method, compared with the pipeline on the same problems."""

from __future__ import annotations

import pytest
import torch
from zoo import ZOO

import pear
from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.one_pass import solve_in_one_pass
from pear.decisions.solution import as_solution
from pear.optimality.rule import OPTIMAL

TAKEN = [name for name, case in ZOO.items() if case.problem.phi is None and not case.problem.is_sparse]


@pytest.mark.parametrize("name", TAKEN)
def test_one_pass_says_what_the_pipeline_says(name: str) -> None:
    case = ZOO[name]
    problem = case.problem.relaxed()
    one = solve_in_one_pass(problem, case.cost, case.smoothing, "auto")
    all_steps = as_solution(problem, solve_continuous_programs(problem, case.cost, case.smoothing, "auto"))
    if one is None:  # its rows differ in size by twelve orders, and one sample is left to the pipeline
        assert name == "uneven rows"
        return
    assert one.status.tolist() == all_steps.status.tolist()
    assert bool((one.kkt_residual <= OPTIMAL).all())
    torch.testing.assert_close(one.x, all_steps.x, rtol=0, atol=1e-12 * case.size)
    torch.testing.assert_close(one.value, all_steps.value, rtol=1e-12, atol=1e-12 * case.size * case.force)
    for kind in ("active", "weak"):
        assert bool(getattr(one, kind).same(getattr(all_steps, kind)).all())
    assert one.repaired.tolist() == all_steps.repaired.tolist()
    assert one.gap.tolist() == all_steps.gap.tolist()


def test_the_pass_is_made_once_for_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    from pear.solvers.active_set import compiled_pass

    made = []
    original = compiled_pass.CompiledPass.__init__

    def count(self: compiled_pass.CompiledPass, *given: object) -> None:
        made.append(given)
        original(self, *given)

    monkeypatch.setattr(compiled_pass.CompiledPass, "__init__", count)
    problem = pear.Problem(lb=0.0, ub=1.0, n=3)
    first, again = (pear.solve(problem, [[1.0, -2.0, 0.5]], 0.1).x for _ in range(2))
    assert first.tolist() == again.tolist() == [[0.0, 1.0, 0.0]]
    assert len(made) == 1
    for smoothing, x in ((1.0, 0.25), (0.5, 0.5)):
        found = pear.solve(problem, [[1.0, -0.25, 0.5]], smoothing).x
        torch.testing.assert_close(found, torch.tensor([[0.0, x, 0.0]], dtype=found.dtype), rtol=1e-15, atol=0)
    assert len(made) == 1


def test_a_sample_that_fails_leaves_the_batch_to_the_pipeline() -> None:
    problem = pear.Problem(lb=0.0, n=2)
    costs = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [torch.nan, 1.0]])
    assert solve_in_one_pass(problem, costs, 0.0, "auto") is None
    statuses = [pear.Status.SOLVED, pear.Status.UNBOUNDED, pear.Status.NOT_FINITE]
    with pytest.warns(UserWarning, match="could not be solved"):
        assert pear.solve(problem, costs, on_failure="mask").status.tolist() == statuses


def test_a_negative_smoothing_is_refused() -> None:
    with pytest.raises(pear.ProblemError, match="smoothing"):
        pear.solve(pear.Problem(lb=0.0, ub=1.0, n=2), [[1.0, 2.0]], -1.0)

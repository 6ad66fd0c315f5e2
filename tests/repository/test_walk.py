"""The walk in CONTRIBUTING.md: a batch calls the functions that the page lists, in this order."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import pear

ROOT, SOURCE = Path(__file__).resolve().parents[2], Path(pear.__file__).parent
STEP = re.compile(r"^(\d+)\. `([\w/]+\.py)` `([\w.]+)`( \(compiled\))?", re.MULTILINE)


def steps() -> list[tuple[str, bool]]:
    """Return each step of the page as "file:function", and whether it is compiled, so that Python cannot trace it."""
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    found = [(f"{file}:{function}", bool(compiled)) for _, file, function, compiled in STEP.findall(page)]
    assert [int(number) for number, *_ in STEP.findall(page)] == list(range(1, len(found) + 1))
    return found


def functions_met() -> list[str]:
    """Return the functions, as "file:function", that the second training step on a batch calls, in this order."""
    problem = pear.tasks.shortest_path((3, 3)).problem
    loss = pear.PEARLoss(problem, smoothing=0.1)
    generator = torch.Generator().manual_seed(0)
    predicted, true = torch.rand(2, 4, problem.n, dtype=torch.float64, generator=generator)
    predicted.requires_grad_()
    loss(predicted, true, keys=range(4)).backward()
    met: list[str] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            met.append(f"{path.relative_to(SOURCE)}:{frame.f_code.co_qualname}")

    sys.setprofile(note)
    try:
        loss(predicted, true, keys=range(4)).backward()
    finally:
        sys.setprofile(None)
    return met


def compiled_calls(folder: Path, first: str) -> list[str]:
    """Return the functions, as "file:function", that a compiled function calls, directly or indirectly.

    Names are unique in the folder.
    """
    bodies = {
        node.name: (path, node)
        for path in sorted(folder.glob("*.py"))
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    reached, ahead = [], [first]
    while ahead:
        name = ahead.pop(0)
        path, node = bodies[name]
        reached.append(f"{path.relative_to(SOURCE)}:{name}")
        calls = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
        names = [one.id if isinstance(one, ast.Name) else getattr(one, "attr", "") for one in calls]
        seen = {one.rpartition(":")[2] for one in reached}
        ahead += [one for one in dict.fromkeys(names) if one in bodies and one not in seen and one not in ahead]
    return reached


def test_a_batch_meets_the_functions_of_the_page_in_their_order() -> None:
    met = functions_met()
    named = [step for step, compiled in steps() if not compiled]
    assert len(steps()) <= 10
    assert [step for step in named if step not in met] == []
    assert sorted(named, key=met.index) == named


def test_the_compiled_steps_are_reached_from_the_kernel() -> None:
    reached = compiled_calls(SOURCE / "solvers/active_set", "set_sample_regret")
    named = [step for step, compiled in steps() if compiled]
    assert named
    assert [step for step in named if step not in reached] == []

"""Times of trainings, and of steps of ``PEARLoss`` and ``DecisionLayer``, if decisions are computed on GPU or CPU.

Run: python lab/studies/decision_device_study.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

import pear

SAMPLES, EPOCHS, REPEATS = 1200, 20, 15
PLACES = {"all on the GPU": ("cuda", "cuda"), "problem on the CPU": ("cpu", "cuda"), "all on the CPU": ("cpu", "cpu")}
BATCHES = {"path-5": (1, 32, 64, 128, 512), "path-12": (1, 4, 32), "portfolio": (1, 32, 64, 128, 512)}


def problems(draw: Callable[..., Tensor]) -> dict[str, tuple[pear.Problem, float]]:
    """Return problems by name, each with the strength of its smoothing. ``draw`` draws random tensors."""
    Q = draw(100, 100)
    portfolio = pear.Problem(Q=Q @ Q.T / 100 + 0.1 * torch.eye(100), A=torch.ones(1, 100), b=[1.0], lb=0.0)
    paths = {f"path-{side}": (pear.tasks.shortest_path((side, side)).problem, 0.1) for side in (5, 12)}
    return paths | {"portfolio": (portfolio, 0.0)}


def describe_fit(problem_at: str, model_at: str, epochs: int) -> str:
    """Train a network with 64 hidden units on paths through a 5×5 grid; return times and the best regret as text.

    Decisions are computed on the device ``problem_at``, and the network is on the device ``model_at``.
    """
    task = pear.tasks.shortest_path((5, 5))
    X, C = task.samples(SAMPLES, degree=6, noise=0.5, seed=0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, task.problem.n)).to(model_at)
    loss, config = pear.PEARLoss(task.problem.to(problem_at)), pear.FitConfig(max_epochs=epochs, patience=100)
    history = pear.fit(model, loss, (X.to(model_at), C.to(model_at)), config=config)
    assert history.before is not None
    assert history.best is not None
    steps = (history.epochs + history.before.epochs) * -(-(SAMPLES * 4 // 5) // config.batch_size)
    checks = history.check_seconds + history.before.check_seconds
    parts = f"decisions {history.split['solve']:.2f} s, validation {checks:.2f} s"
    times = f"{history.seconds:.2f} s, {1e3 * history.seconds / steps:.2f} ms a step ({parts})"
    return f"{times}, regret {history.best.metric:.4f}"


def median_milliseconds(step: Callable[[], None]) -> float:
    """Return the median time of a step in milliseconds, with its work on the GPU. The first four calls do not count."""
    times = []
    for _ in range(REPEATS + 4):
        torch.cuda.synchronize()
        began = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times[4:])


def time_steps(problem: pear.Problem, smoothing: float, predicted: Tensor, true: Tensor, device: str) -> list[float]:
    """Return the milliseconds of a step of ``PEARLoss`` and of ``DecisionLayer``, with decisions on ``device``.

    A step is a forward and a backward pass. Samples have no keys, so that nothing is known from earlier steps.
    """
    loss, layer = pear.PEARLoss(problem, smoothing, guidance=0.0), pear.DecisionLayer(problem, smoothing)
    loss.decision_device = layer.decision_device = torch.device(device)

    def step(value: Callable[[Tensor], Tensor]) -> None:
        value(predicted.detach().requires_grad_()).backward()

    times = [lambda x: loss(x, true), lambda x: layer(x).square().sum()]
    return [median_milliseconds(lambda value=value: step(value)) for value in times]  # type: ignore[misc]


def main() -> None:
    """Print the times of trainings, then those of steps."""
    torch.set_num_threads(1)
    for place, devices in PLACES.items():
        describe_fit(*devices, epochs=2)
        print(f"fit, {place}: {describe_fit(*devices, epochs=EPOCHS)}", flush=True)
    draw = partial(torch.rand, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for name, (problem, smoothing) in problems(draw).items():
        for batch in BATCHES[name]:
            costs = (0.5 + draw(2, batch, problem.n)).cuda()
            found = {device: time_steps(problem, smoothing, *costs, device) for device in ("cuda", "cpu")}
            times = (f"{device}: loss {loss:.2f}, layer {layer:.2f} ms" for device, (loss, layer) in found.items())
            print(f"{name}, {batch}: {'; '.join(times)}", flush=True)


if __name__ == "__main__":
    main()

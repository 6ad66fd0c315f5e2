"""The pictures of ``docs/idea.md``, drawn by the library: every decision, regret and gradient in them is computed.

    python tools/pictures.py [FOLDER]

The command writes ``idea-*.svg`` into ``docs/images``, or into FOLDER.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pear
from pear.pages import figure_style

ROOT = Path(__file__).resolve().parents[1]

PLAN = pear.Problem(G=[[1.0, 2.0], [3.0, 2.0]], h=[8.0, 12.0], lb=0.0, sense="max")
CORNERS = np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 3.0], [0.0, 4.0]])
TRUE, NEAR, FAR = np.array([2.0, 1.0]), np.array([2.0, 1.5]), np.array([3.6, 1.6])
LAMBDA = 0.4

Array = np.ndarray[Any, np.dtype[np.float64]]
GOOD, BAD, OTHER = figure_style.LIGHT["pear"], figure_style.LIGHT["mse"], figure_style.LIGHT["spo"]


def decision(profit: Array, smoothing: float = 0.0) -> Array:
    """Return the best production plans (…, 2) for profits (…, 2); ``smoothing`` is the strength λ of the smoothing."""
    flat = np.atleast_2d(profit)
    return pear.solve(PLAN, flat, smoothing=smoothing).x.numpy().reshape(np.shape(profit))


def smoothed_regret(forecasts: Array, smoothing: float) -> Array:
    """Return the values (B,) of ``PEARLoss`` for forecasts (B, 2), without guidance and injection."""
    loss = pear.PEARLoss(PLAN, smoothing=smoothing, guidance=0.0, injection=0.0, reduction="none")
    return loss(torch.as_tensor(forecasts), torch.as_tensor(np.tile(TRUE, (len(forecasts), 1)))).numpy()


def ground(axes: Any) -> None:
    """Draw the set of production plans that the capacities of two machines allow."""
    axes.fill(*CORNERS.T, color=figure_style.LIGHT["within-bg"], zorder=1)
    axes.plot(*np.vstack([CORNERS, CORNERS[:1]]).T, color=figure_style.LIGHT["pear-pale"], zorder=2)
    axes.set(xlim=(-0.35, 5.6), ylim=(-0.35, 5.1), aspect="equal", xlabel="tables", ylabel="chairs")


def arrow(axes: Any, start: Array, step: Array, color: str, label: str, at: tuple[float, float] = (6, 2)) -> None:
    """Draw an arrow, with a label beside its tip."""
    axes.annotate("", start + step, start, arrowprops={"arrowstyle": "-|>", "color": color, "lw": 2}, zorder=4)
    axes.annotate(label, start + step, at, textcoords="offset points", color=color, zorder=5)


def point(axes: Any, where: Array, color: str, label: str, at: tuple[float, float]) -> None:
    """Draw a point, with a label beside it."""
    axes.plot(*where, "o", color=color, ms=9, zorder=5)
    axes.annotate(label, where, at, textcoords="offset points", color=color, zorder=5)


def draw_decision(path: Path) -> Path:
    """Draw the production plan that is farthest in the direction of the profits, and what a wrong direction costs."""
    with figure_style.styled_figure((9.2, 4.3), "both", (1.0, 1.0)) as (figure, both):
        best, taken = decision(TRUE), decision(NEAR)
        lost = float(pear.regret(PLAN, NEAR[None], TRUE[None])[0])
        titles = ("The true profits: the best plan is a corner", "The forecast: another corner")
        for axes, profit, title in zip(both, (TRUE, NEAR), titles, strict=True):
            ground(axes)
            z = decision(profit)
            across = np.array([-profit[1], profit[0]]) / np.linalg.norm(profit)
            ends = z + np.outer([-6, 6], across)
            axes.plot(*ends.T, "--", color=figure_style.MUTED, lw=1, zorder=3)
            axes.set_title(title)
        arrow(both[0], best, 0.6 * TRUE, GOOD, "true profits c")
        point(both[0], best, GOOD, f"worth {TRUE @ best:g}", (-60, 7))
        arrow(both[1], taken, 0.6 * NEAR, BAD, "forecast ĉ")
        point(both[1], taken, BAD, f"worth {TRUE @ taken:g} in truth: {lost:g} is lost", (10, -4))
        point(both[1], best, GOOD, "", (0, 0))
        return figure_style.save_figure(figure, path)


def draw_forecasts(path: Path) -> Path:
    """Draw the plane of forecasts twice: with the distance from the truth, and with the regret."""
    angle = np.radians(np.linspace(0.05, 89.95, 1799))
    rays = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    lost = pear.regret(PLAN, rays, np.tile(TRUE, (len(rays), 1))).numpy().round(6)
    colors = (figure_style.LIGHT["within-bg"], figure_style.LIGHT["worse-bg"], "#f3c9b8")
    with figure_style.styled_figure((9.2, 3.9), "both", (1.0, 1.0)) as (figure, both):
        for axes, title in zip(both, ("Squared error: circles around the truth", "Regret: cones"), strict=True):
            axes.set(xlim=(0, 4.4), ylim=(0, 3.3), aspect="equal", title=title)
            axes.set(xlabel="forecast profit of a table", ylabel="of a chair")
        for radius in (0.5, 1.0, 1.5, 2.0):
            turn = np.linspace(0, 2 * np.pi, 100)
            both[0].plot(TRUE[0] + radius * np.cos(turn), TRUE[1] + radius * np.sin(turn), color=OTHER, lw=1)
        for cost, color in zip(np.unique(lost), colors, strict=True):
            cone = 9 * rays[lost == cost][[0, -1]]
            both[1].fill(*np.vstack([[0.0, 0.0], cone]).T, color=color, zorder=1)
        for text, x, y in (("nothing is lost", 2.6, 0.4), ("1 is lost", 2.2, 2.5), ("4 are lost", 0.25, 2.6)):
            both[1].text(x, y, text, color=figure_style.MUTED)
        for axes in both:
            point(axes, TRUE, figure_style.INK, "truth", (-34, -4))
            point(axes, NEAR, BAD, "near", (-6, 9))
            point(axes, FAR, GOOD, "far", (-6, 9))
        return figure_style.save_figure(figure, path)


def draw_split(path: Path) -> Path:
    """Draw the error at the decision, its parts along and across the active constraint, and the regret of each part."""
    z, error = decision(NEAR, LAMBDA), NEAR - TRUE
    tangent = LAMBDA * pear.regret_gradient(PLAN, NEAR[None], TRUE[None], smoothing=LAMBDA)[0].numpy()
    normal, zoom = error - tangent, 3.2
    with figure_style.styled_figure((9.2, 4.3), "both", (1.0, 1.0)) as (figure, (left, right)):
        ground(left)
        left.set_title("The error, and its two parts")
        for step, start in ((normal, z + zoom * tangent), (tangent, z + zoom * normal)):
            left.plot(*np.stack([start, start + zoom * step]).T, ":", color=figure_style.MUTED, lw=1, zorder=3)
        arrow(left, z, zoom * error, BAD, "error ĉ − c", (-24, 6))
        arrow(left, z, zoom * tangent, GOOD, "tangent", (-52, 2))
        arrow(left, z, zoom * normal, OTHER, "normal")
        point(left, z, figure_style.INK, "decision", (-56, -12))
        length = np.linspace(-0.6, 0.6, 61)
        for step, color, name in ((tangent, GOOD, "along the edge"), (normal, OTHER, "across it")):
            unit = step / np.linalg.norm(step)
            right.plot(length, smoothed_regret(TRUE + np.outer(length, unit), LAMBDA), color=color, lw=2.2, label=name)
        right.set(title="What an error of this length costs", xlabel="length of the error", ylabel="regret")
        right.legend(title="error")
        return figure_style.save_figure(figure, path)


def draw_smoothing(path: Path) -> Path:
    """Draw the effect of smoothing: rounded corners in the decisions, and slopes instead of steps in the regret."""
    angle = np.linspace(2, 88, 87)
    forecasts = np.linalg.norm(TRUE) * np.stack([np.cos(np.radians(angle)), np.sin(np.radians(angle))], axis=1)
    with figure_style.styled_figure((9.2, 4.3), "both", (1.0, 1.0)) as (figure, (left, right)):
        ground(left)
        left.set_title("Decisions while the forecast turns")
        for smoothing, color in ((LAMBDA, figure_style.LIGHT["pear-mid"]), (0.0, BAD)):
            left.plot(*decision(forecasts, smoothing).T, "o", color=color, ms=5 if smoothing else 10, zorder=4)
            name = f"λ = {smoothing:g}"
            lost = smoothed_regret(forecasts, smoothing or 1e-9)
            right.plot(angle, lost, color=color, lw=2.2, label=name)
        right.axvline(np.degrees(np.arctan2(TRUE[1], TRUE[0])), color=figure_style.MUTED, lw=1, ls="--")
        right.annotate("truth", (28, 4.1), color=figure_style.MUTED)
        right.set(title="What is lost", xlabel="direction of the forecast, degrees", ylabel="regret")
        right.legend()
        return figure_style.save_figure(figure, path)


PICTURES = {
    "idea-decision.svg": draw_decision,
    "idea-forecasts.svg": draw_forecasts,
    "idea-split.svg": draw_split,
    "idea-smoothing.svg": draw_smoothing,
}


def main(folder: Path) -> list[Path]:
    """Draw all pictures into a folder, and return their files."""
    folder.mkdir(parents=True, exist_ok=True)
    return [draw(folder / name) for name, draw in PICTURES.items()]


if __name__ == "__main__":
    for written in main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"):
        print(written)

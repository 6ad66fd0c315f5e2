"""The speed of two checkouts of this repository, measured in turn on the same machine.

    python lab/studies/compare_trees.py BEFORE AFTER [--rounds 5] [--only gradient-paths training-paths …]

Every job runs in a process of its own. In each round it runs first with the code of one folder, then with that of the
other. The command prints the median times, the median ratio, and the range of the ratios of single rounds. All times
are processor time, so that other work on the machine hardly affects them. A job reports the fastest of its repeats;
jobs that measure the start of the package have no repeats. Each job runs once in each tree before its first round, to
compile the kernels. Trainings begin with ``start="mse"`` or "given", because the default start is not the same in all
trees. Jobs of a battery need the days of the PJM market under ``$PEAR_DATA``. Of these jobs, those with "epochs" in
their name run a training loop written by hand, and those with "fit" run ``pear.fit`` with the same loss. Both kinds
train a linear model or a network with a hidden layer of 64 units. Jobs with "race" in their name fit a
``DecisionRegressor`` with default settings.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

START = """
import time, torch, pear
torch.set_num_threads(1)

def fastest(step, repeats):
    step()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        step()
        times.append(time.process_time() - began)
    print(min(times))
"""
PORTFOLIO = """
generator = torch.Generator().manual_seed(0)
draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
days = 0.01 * (draw(64, 84, 5) @ draw(5, 100) + draw(64, 84, 100))
Q = 2 * (days.mT @ days / 84 + 1e-4 * torch.eye(100, dtype=torch.float64))
c, d = -days.mean(1), -days[:, :42].mean(1)
problem = pear.Problem(Q=Q, A=torch.ones(1, 100), b=torch.ones(1), lb=0.0)
"""
PATHS = """
task = pear.tasks.shortest_path((5, 5))
features, costs = task.samples(1000, degree=8, noise=0.5, seed=0)
problem, c, d = task.problem, costs[:64].double(), costs[64:128].double()
"""
COMMITMENT = f"""
import sys, tempfile
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).resolve().parents[1] / "src")!r})  # the model alone; it does not use the library
from pear_lab.benchmarks.commitment_model import CommitmentModel, draw_commitment_days
drawn, count, hours = CommitmentModel(8, 24, 0), 16, range(24)
with tempfile.TemporaryDirectory() as folder:
    drawn.write(Path(folder) / "plants.lp")
    prices = {{f"dem{{t}}": (300.0, 5.0) for t in hours}}
    names = [f"imp{{t}}" for t in hours]
    model = pear.from_mps(Path(folder) / "plants.lp", names, rows=list(prices), recourse=prices)
days = draw_commitment_days(drawn, count, 0)
true = torch.stack([torch.from_numpy(days[name]) for name in [*names, *prices]], 1)
draw = torch.Generator().manual_seed(0)
shake = lambda size: size * true.std(0) * torch.randn(true.shape, generator=draw, dtype=torch.float64)
"""
BATTERY = """
import os, numpy as np, cvxpy as cp
days = np.load(os.environ["PEAR_DATA"] + "/battery/pjm_days.npz")
train = int(0.8 * len(days["X"]))
X, Y = (torch.tensor(days[name][:train]).double() for name in "XY")
price, state, into, out = cp.Parameter(24), cp.Variable(25), cp.Variable(24), cp.Variable(24)
cost = price @ (into - out) + 0.1 * cp.sum_squares(state - 0.5) + 0.05 * (cp.sum_squares(into) + cp.sum_squares(out))
rules = [state[0] == 0.5, state[1:] == state[:-1] + 0.9 * into - out, state >= 0, state <= 1]
rules += [into >= 0, into <= 0.5, out >= 0, out <= 0.2]
model = pear.from_cvxpy(cp.Problem(cp.Minimize(cost), rules), [price])

def epochs(count):
    torch.manual_seed(0)
    net, loss = torch.nn.Linear(101, 24).double(), pear.PEARLoss(model, smoothing=0.0, injection=0.0)
    adam = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(count):
        for rows in torch.arange(train).split(32):
            adam.zero_grad()
            loss(net(X[rows]), Y[rows], keys=rows.tolist()).backward()
            adam.step()
            loss.step()

def fit(count, *layers):
    torch.manual_seed(0)
    net = torch.nn.Sequential(*layers) if layers else torch.nn.Linear(101, 24)
    config = pear.FitConfig(max_epochs=count, check_every=count, start="given")
    pear.fit(net.double(), pear.PEARLoss(model, smoothing=0.0, injection=0.0), (X, Y), (X[:32], Y[:32]), config=config)

mlp = lambda: (torch.nn.Linear(101, 64), torch.nn.ReLU(), torch.nn.Linear(64, 24))

def race(kind):
    began = time.process_time()
    pear.DecisionRegressor(model, kind).fit(X.numpy(), Y.numpy())
    print(time.process_time() - began)
"""
DENSE = """
generator = torch.Generator().manual_seed(0)
draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
cost, true, rows, own, limits = draw(64, 40), draw(64, 40), draw(60, 40), draw(64, 60, 40), 0.5 + draw(64, 60).abs()
problem = pear.Problem(G=rows, h=limits[0], lb=-1.0, ub=1.0)
layer = pear.DecisionLayer(problem, smoothing=0.3)
"""
JOBS = {
    "gradient-paths": PATHS
    + """
loss = pear.PEARLoss(problem, smoothing=0.1)
fastest(lambda: loss(c.clone().requires_grad_(), d).backward(), 40)
""",
    "gradient-paths-keys": PATHS
    + """
loss = pear.PEARLoss(problem, smoothing=0.1)
fastest(lambda: loss(c.clone().requires_grad_(), d, keys=range(64)).backward(), 100)
""",
    "gradient-portfolio": PORTFOLIO
    + """
loss = pear.PEARLoss(problem, smoothing=0.0)
fastest(lambda: loss(c.clone().requires_grad_(), d).backward(), 40)
""",
    "layer-portfolio": PORTFOLIO
    + """
layer = pear.DecisionLayer(problem)
fastest(lambda: (layer(c.clone().requires_grad_()) * d).sum().backward(), 40)
""",
    "training-paths": PATHS
    + """
def train():
    torch.manual_seed(0)
    train, validation = (features[:500], costs[:500]), (features[500:], costs[500:])
    pear.fit(torch.nn.Linear(5, 40), pear.PEARLoss(problem), train, validation,
             config=pear.FitConfig(max_epochs=20, check_every=10, start="mse"))
fastest(train, 3)
""",
    "training-network": PATHS
    + """
def train():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 32), torch.nn.ReLU(), torch.nn.Linear(32, 40))
    pear.fit(net, pear.PEARLoss(problem), (features[:500], costs[:500]), (features[500:], costs[500:]),
             config=pear.FitConfig(max_epochs=10, check_every=5, start="mse"))
fastest(train, 3)
""",
    "dense-solve": DENSE + "fastest(lambda: pear.solve(problem, cost, smoothing=0.3), 5)",
    "dense-own-limits": DENSE
    + "fastest(lambda: (layer(cost.clone().requires_grad_(), h=limits) * true).sum().backward(), 5)",
    "dense-own-rows": DENSE
    + """
fastest(lambda: (layer(cost.clone().requires_grad_(), G=own, h=limits) * true).sum().backward(), 5)
""",
    "dense-equalities": DENSE
    + """
many = pear.Problem(A=rows[:30], b=rows[:30] @ torch.full((40,), 0.5, dtype=torch.float64), lb=0.0, ub=1.0)
fastest(lambda: pear.regret_gradient(many, cost, true, smoothing=0.3), 5)
""",
    "dense-singular-injection": DENSE
    + """
flat = pear.Problem(Q=rows[:5].mT @ rows[:5], A=rows[:10], b=rows[:10].sum(1), lb=0.0, ub=2.0)
loss = pear.PEARLoss(flat, smoothing=0.0)
fastest(lambda: loss(cost.clone().requires_grad_(), true).backward(), 5)
""",
    "battery-first-epoch": BATTERY + "fastest(lambda: epochs(1), 1)",
    "battery-five-epochs": BATTERY + "fastest(lambda: epochs(5), 1)",
    **{
        f"battery-fit-{name}-{count}": f"{BATTERY}fastest(lambda: fit({count}{layers}), 1)"
        for name, layers in {"linear": "", "mlp": ", *mlp()"}.items()
        for count in (1, 5)
    },
    **{f"battery-race-{kind}": f"{BATTERY}race({kind!r})" for kind in ("linear", "mlp")},
    "scaling-grid": """
task = pear.tasks.shortest_path((40, 40))
c = torch.rand(2, task.problem.n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
fastest(lambda: pear.regret_gradient(task.problem, c, c.flip(0), smoothing=0.1), 3)
""",
    "integers-knapsack": """
task = pear.tasks.random_knapsack(100, 5, 0.5, seed=0)
costs = task.samples(40, degree=4, noise=0.5, seed=0).costs
fastest(lambda: pear.solve(pear.Problem(**{n: getattr(task.problem, n) for n in ("G", "h", "lb", "ub")}, sense="max",
                                        integer=True), costs), 2)
""",
    # a visit of a sample of the unit commitment in training, whose forecast has moved a little since the last one
    "training-commitment": COMMITMENT
    + """
loss, at = pear.PEARLoss(model, smoothing=666.0), true + shake(0.3)
def visit():
    at.add_(shake(0.002))
    loss(at.clone().requires_grad_(), true, keys=range(count)).backward()
fastest(visit, 6)
""",
}
COLD = {
    "import-after-torch": "import torch, time; t = time.process_time(); import pear; print(time.process_time() - t)",
    "first-gradient": "import torch, time; t = time.process_time(); import pear\n"
    "p = pear.tasks.shortest_path((5, 5)).problem; c = torch.rand(8, 40, requires_grad=True)\n"
    "pear.PEARLoss(p, smoothing=0.1)(c, torch.rand(8, 40)).backward(); print(time.process_time() - t)",
}


def seconds(tree: Path, code: str) -> float:
    """Run the job ``code``, a script, with the package of the checkout ``tree``; return the seconds that it prints."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    environment = {**os.environ, **one, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{tree}: {done.stderr.strip()}")
    return float(done.stdout.split()[-1])


def main() -> None:
    """Measure all jobs and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    jobs = {name: START + code for name, code in JOBS.items()} | COLD
    chosen = {name: code for name, code in jobs.items() if not options.only or name in options.only}
    trees = [options.before.resolve(), options.after.resolve()]
    print("| job | before, ms | after, ms | after / before | single rounds |\n|---|---:|---:|---:|---:|")
    for name, code in chosen.items():
        for tree in trees:
            seconds(tree, code)  # compiles what is missing
        rounds = [[seconds(tree, code) for tree in trees] for _ in range(options.rounds)]
        before, after = (statistics.median(times) for times in zip(*rounds, strict=True))
        ratios = sorted(second / first for first, second in rounds)
        middle, times = statistics.median(ratios), f"{1e3 * before:.2f} | {1e3 * after:.2f}"
        print(f"| {name} | {times} | {middle:.2f} | {ratios[0]:.2f} to {ratios[-1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()

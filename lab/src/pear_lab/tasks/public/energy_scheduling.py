"""Energy-aware scheduling: jobs are run on a machine when energy is cheap, at predicted prices of the day."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pear.problem import CostMap, Model, Problem
from pear_lab.data.energy_data import FOLDER
from pear_lab.tasks.public.drawn_samples import Array
from pear_lab.tasks.public.irish_days import draw_irish_days
from pear_lab.tasks.public.public_task import Drawing, PublicTask, shared_task_forecaster

Counts = NDArray[np.integer[Any]]

SLOTS = 12
_JOBS = 4
_PLACEMENTS = 20


class EnergyScheduleJobs(NamedTuple):
    """The jobs of a day. Each array has an entry for each job.

    Attributes:
        duration: the number of consecutive slots of the job.
        earliest: the first slot in which the job may start.
        latest: the slot before which the job must have ended.
        power: the energy that the job needs in a slot.
        load: the capacity of the machine that the running job uses.
    """

    duration: Counts
    earliest: Counts
    latest: Counts
    power: Array
    load: Array

    def starts(self) -> list[tuple[int, int]]:
        """Return all pairs of a job and a slot in which it may start. Each pair is a variable, in this order."""
        rows = zip(self.earliest, self.latest, self.duration, strict=True)
        return [
            (job, slot) for job, (low, high, long) in enumerate(rows) for slot in range(int(low), int(high - long) + 1)
        ]


def energy_schedule_model(jobs: EnergyScheduleJobs, capacity: float, slots: int = SLOTS) -> Model:
    """Return the 0–1 program in which every job starts once and the load of every slot is at most ``capacity``.

    There is a variable for each job and start. Its cost is what the energy of the job costs at the predicted prices of
    the slots in which the job would run.

    Example:
        >>> two = EnergyScheduleJobs(*(np.array(row) for row in ([1, 2], [0, 0], [3, 3], [1.0, 2.0], [0.5, 0.8])))
        >>> energy_schedule_model(two, capacity=1.0, slots=3).problem
        Problem(min, n=5, 2 equalities, 3 inequalities, bounds, 5 integer)
    """
    starts = jobs.starts()
    once, busy, energy = (
        np.zeros((len(jobs.load), len(starts))),
        np.zeros((slots, len(starts))),
        np.zeros((len(starts), slots)),
    )
    for i, (job, slot) in enumerate(starts):
        running = slice(slot, slot + int(jobs.duration[job]))
        once[job, i], busy[running, i], energy[i, running] = 1.0, jobs.load[job], jobs.power[job]
    problem = Problem(
        A=once, b=np.ones(len(once)), G=busy, h=np.full(slots, capacity), lb=0.0, ub=1.0, integer=True
    )  # fmt: skip
    return Model(problem, cost_map=CostMap(energy, names=[f"price {slot}" for slot in range(slots)]))


def draw_energy_schedule_jobs(random: np.random.RandomState) -> tuple[EnergyScheduleJobs, float]:
    """Draw jobs and the capacity of the machine, which is the lowest peak load of several random schedules.

    With this capacity the jobs have a schedule.
    """
    duration = random.randint(1, 4, _JOBS)
    earliest, latest = random.randint(0, 4, _JOBS), random.randint(9, SLOTS + 1, _JOBS)
    jobs = EnergyScheduleJobs(duration, earliest, latest, random.uniform(1, 3, _JOBS), random.uniform(0.4, 1.2, _JOBS))
    peaks = []
    for _ in range(_PLACEMENTS):
        used = np.zeros(SLOTS)
        for job in range(_JOBS):
            slot = random.randint(earliest[job], latest[job] - duration[job] + 1)
            used[slot : slot + duration[job]] += jobs.load[job]
        peaks.append(used.max())
    return jobs, min(peaks)


def draw_energy_schedules(seed: int) -> Drawing:
    """Draw jobs, and split the days at random into training, validation and test.

    Raises:
        DataError: ``$PEAR_DATA`` has no prices.
    """
    random = np.random.RandomState(seed)
    return Drawing(energy_schedule_model(*draw_energy_schedule_jobs(random)), draw_irish_days(random, SLOTS))


ENERGY_SCHEDULING = PublicTask(
    name="energy-scheduling",
    title="Energy scheduling",
    origin=(
        "CSPLib 059 and the ICON challenge 2014; Mandi, Demirović, Stuckey & Guns 2020, arXiv 1911.10092; Mandi et al. "
        "2024, arXiv 2307.13565"
    ),
    protocol=(
        "Jobs with durations, windows, power and load run on a machine of limited capacity at predicted prices. Irish "
        "half-hour prices of 789 days, and what is known the day before: calendar, forecasts of wind, load and price. "
        "The origin has several machines and resources and 48 half-hours, days in their order; published are absolute "
        "regrets of its own instances, which are not comparable. Ours is one machine, 4 jobs and 12 slots of two hours "
        "(about 35 binary variables, 12 predicted prices); the seed draws the jobs and which 200 days train, 100 "
        "choose and 489 test. One linear model for all slots."
    ),
    draw=draw_energy_schedules,
    forecaster=shared_task_forecaster,
    needs_data=FOLDER,
)  # fmt: skip

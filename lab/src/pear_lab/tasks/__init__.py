"""Decision tasks on real data, split into training, validation and test samples, and metrics that judge forecasts."""

from pear_lab.tasks import metrics
from pear_lab.tasks.building_task import Building, building, building_split
from pear_lab.tasks.energy_task import energy_split
from pear_lab.tasks.splits import SharedLinear, Subset, TaskSplit

__all__ = ["Building", "SharedLinear", "Subset", "TaskSplit", "building", "building_split", "energy_split", "metrics"]

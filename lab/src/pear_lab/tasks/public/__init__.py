"""Public tasks of the literature, one or a few in each file, with their origins, protocols and published numbers."""

from __future__ import annotations

from pear_lab.tasks.public.public_task import Drawing, PublicTask, Published
from pear_lab.tasks.public.task_table import PUBLIC_TASKS, task_table_row

__all__ = ["PUBLIC_TASKS", "Drawing", "PublicTask", "Published", "task_table_row"]

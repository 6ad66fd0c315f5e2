"""Public tasks of the literature: each in a file of its own, with its origin, protocol and published numbers."""

from __future__ import annotations

from pear_lab.tasks.public.public_task import Drawing, PublicTask, Published
from pear_lab.tasks.public.task_table import PUBLIC_TASKS, task_table_row

__all__ = ["PUBLIC_TASKS", "Drawing", "PublicTask", "Published", "task_table_row"]

"""Settings that every test shares."""

from __future__ import annotations

import hypothesis
import torch

torch.set_num_threads(1)  # small systems gain nothing from threads, and one thread makes results repeatable
hypothesis.settings.register_profile("pear", deadline=None, derandomize=True, print_blob=False)
hypothesis.settings.load_profile("pear")

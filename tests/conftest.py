"""One thread for every test: sums are taken in one order, and parallel workers do not fight."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("no-clock", deadline=None)  # a busy machine is not a failure
settings.load_profile("no-clock")

"""Named random generators, all derived from the run seed, all saved in the checkpoint.

Each purpose has its own stream, so that adding heads or views to a method leaves the draws of
every other purpose unchanged: the encoder's path must not depend on the heads
(docs/protocol/training.md, "Randomness").
All draw on the CPU: sizes are known without asking the device, and draws do not depend on it.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch

NAMES = ("weights", "labeled_views", "unlabeled_views", "method")


def generator(seed: int, name: str) -> torch.Generator:
    """Return the generator for one purpose; equal (seed, name) give equal streams everywhere."""
    number = int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "big")
    return torch.Generator().manual_seed(number >> 1)


def generators(seed: int) -> dict[str, torch.Generator]:
    return {name: generator(seed, name) for name in NAMES}


@contextmanager
def seeded(stream: torch.Generator) -> Iterator[None]:
    """Inside the block, seed the global generator, which initializers read, from `stream`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, (), generator=stream, device="cpu")))
        yield

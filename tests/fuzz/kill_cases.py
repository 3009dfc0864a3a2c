"""kill -9 at random moments, again and again: the run ends with the bits of one never killed."""

import random
import shutil
from pathlib import Path

import toy
from verdicts import ACCEPTED, Wrong


class Kills:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.params = toy.toy_params(folder)
        self.root = toy.toy_root(folder)

    def case(self, draw: random.Random) -> str:
        method, out = draw.choice(toy.METHODS), self.folder / "run"
        undisturbed = toy.finished(self.params, method, self.root)
        kills = sorted(draw.sample(range(1, 12), draw.randint(1, 3)))
        try:
            was_killed = [
                toy.train_and_kill(self.params, method, self.root, out, step) for step in kills
            ]
            if not was_killed[0]:
                raise Wrong(f"{method} was not killed at step {kills[0]}")
            toy.train_here(self.params, method, self.root, out)
            toy.same_run(out, undisturbed)
        finally:
            shutil.rmtree(out, ignore_errors=True)
        return ACCEPTED

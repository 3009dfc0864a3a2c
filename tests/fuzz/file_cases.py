"""Files of a run and its data, damaged: refused, or read with the right result."""

import io
import json
import random
import shutil
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import Any

import damage
import numpy as np
import toy
from verdicts import ACCEPTED, judged

from dac import aggregate, evaluate
from dac import train as train_command
from dac.figures import histogram
from dac.io.errors import Stopped, UserError
from dac.runs import checkpoint
from dac.training.run import train

METHOD = "dac"


class Files:
    """Two copies of a data folder and a finished run: one is damaged and put back case by case."""

    def __init__(self, folder: Path) -> None:
        self.pristine, self.folder = folder / "pristine", folder / "case"
        self.params = toy.toy_params(folder)
        root = toy.toy_root(self.pristine)
        self.run = Path("runs") / toy.TASK / METHOD / "seed1"
        self.stopped = Path("runs/stopped")
        toy.train_here(self.params, METHOD, root, self.pristine / self.run)
        self._stop_a_run(root)
        assert judged(evaluate.main, *self._evaluate(self.pristine)) == ACCEPTED
        self.metrics = json.loads((self.pristine / self.run / "metrics.json").read_text())
        shutil.copytree(self.pristine, self.folder)

    def _stop_a_run(self, root: Path) -> None:
        """A second run that was stopped after its seventh step."""
        run, data = self.params.run(toy.TASK, METHOD, 1), toy.toy_data(self.params, METHOD, root)
        with toy.stopping(7) as stop, suppress(Stopped):
            train(run, data, self.pristine / self.stopped, toy.CPU, stop)

    def case(self, draw: random.Random) -> str:
        if draw.random() < 0.15:
            return self._resumed(draw)
        readers = {
            "data/prepared/digits/train.npy": self._evaluated,
            "data/prepared/digits/train_labels.npy": self._evaluated,
            "data/prepared/digits/test.npy": self._evaluated,
            "data/prepared/digits/meta.json": self._evaluated,
            f"data/splits/{toy.TASK}/seed1.json": self._evaluated,
            f"{self.run}/model.pt": self._evaluated,
            f"{self.run}/metrics.json": self._aggregated,
            f"{self.run}/scores.npz": self._drawn,
        }
        name = draw.choice(sorted(readers))
        damage.file_at(self.folder / name, draw)
        try:
            return readers[name]()
        finally:
            damage.restore(self.folder / name, self.pristine / name)
            for made in ("metrics.json", "scores.npz"):
                damage.restore(self.folder / self.run / made, self.pristine / self.run / made)

    def _resumed(self, draw: random.Random) -> str:
        """One checkpoint, or a few, of the stopped run are damaged: it ends with the same bits.

        It is stopped a second time, and what that has saved must be there.
        """
        out = self.folder / self.stopped
        found = sorted(path for path in (out / "work").rglob("*") if path.is_file())
        for path in draw.sample(found, draw.randint(1, len(found))):
            damage.file_at(path, draw)
        key = ("--task", toy.TASK, "--method", METHOD, "--seed", 1, "--out", out)
        places = ("--root", self.folder / "data", "--params", self.params.path, "--device", "cpu")
        try:
            self._stop_again(out, at_step=draw.randint(1, 11))
            verdict = judged(train_command.main, *key, *places)
            if verdict == ACCEPTED:
                toy.same_run(out, self.pristine / self.run)
            return verdict
        finally:
            damage.restore(out, self.pristine / self.stopped)

    def _stop_again(self, out: Path, at_step: int) -> None:
        """Train until this step is done; a run that begins later just ends."""
        run = self.params.run(toy.TASK, METHOD, 1)
        data = toy.toy_data(self.params, METHOD, self.folder / "data")
        try:
            with toy.stopping(at_step) as stop, redirect_stderr(io.StringIO()):
                train(run, data, out, toy.CPU, stop)
        except UserError:
            pass  # the command refuses it, too
        except Stopped:
            saved = checkpoint.newest(toy.working(out))
            assert saved is not None and saved["step"] == at_step, "the run lost what it saved"

    def _evaluate(self, top: Path) -> tuple[Any, ...]:
        places = ("--run", top / self.run, "--root", top / "data")
        return (*places, "--params", self.params.path, "--device", "cpu")

    def _evaluated(self) -> str:
        verdict = judged(evaluate.main, *self._evaluate(self.folder))
        if verdict == ACCEPTED:
            found = json.loads((self.folder / self.run / "metrics.json").read_text())
            assert found == self.metrics, "damage that changes the metrics was accepted"
        return verdict

    def _aggregated(self) -> str:
        """Metrics have no checksum: a changed digit cannot be seen, everything else must be."""
        options = ("--suite", "demo", "--runs", self.folder / "runs", "--params", self.params.path)
        return judged(aggregate.main, *options, "--out", self.folder / "results")

    def _drawn(self) -> str:
        options = ("--run", self.folder / self.run, "--params", self.params.path)
        verdict = judged(histogram.main, *options, "--out", self.folder / "histogram.png")
        if verdict == ACCEPTED:
            name = self.run / "scores.npz"
            with np.load(self.folder / name) as found, np.load(self.pristine / name) as expected:
                assert all(np.array_equal(found[key], expected[key]) for key in expected)
        return verdict

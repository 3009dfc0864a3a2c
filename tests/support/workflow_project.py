"""A copy of the project whose suite is a toy: two methods, two seeds, a dozen steps each.

Commands run inside it and use its own `dac`, so that a test may change code as well.
"""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import warm_commands
import yaml
from toy import TRAIN

TOP = Path(__file__).parents[2]
CODE = ("Snakefile", "workflow", "profiles", "dac", "slurm", "environment.yml")
METHODS = ("labeled-only", "fixmatch", "softmatch", "dac")
TABLE = {
    "title": "Toy",
    "tasks": ["digits-6-30"],
    "methods": ["labeled-only", "dac"],
    "seeds": [1, 2],
    "metrics": {"closed": "closed.best", "AUROC": "auroc"},
}
FIGURE = {
    "title": "Heads",
    "kind": "heatmap",
    "tasks": ["digits-6-30"],
    "methods": ["dac"],
    "seeds": [1],
}
WHOLE = {  # jobs from nothing to everything
    "download": 1,
    "prepare": 1,
    "split": 2,
    "train": 4,
    "evaluate": 4,
    "table": 1,
    "aggregate": 1,
    "figure": 1,
}


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def new(cls, folder: Path) -> "Project":
        """The toy suite in an empty folder."""
        raw = read(TOP / "params.yaml")
        raw["methods"] = {name: raw["methods"][name] for name in METHODS}  # DVC reads YAML slowly
        raw["tasks"] = {name: task for name, task in raw["tasks"].items() if "digits" in name}
        raw["train"]["by_data"]["digits"] |= TRAIN
        raw["pretrain"]["by_data"]["digits"] |= {"epochs": 1}
        raw["aggregate"]["tables"] = {"toy": TABLE}
        raw["figures"]["drawn"] = {"toy-heads": FIGURE}
        raw["suites"] = {"demo": {"tables": ["toy"], "figures": ["toy-heads"]}}
        folder.mkdir(parents=True, exist_ok=True)
        for name in CODE:
            _copy(TOP / name, folder / name)
        write(folder / "params.yaml", raw)
        return cls(folder)

    def copy(self, folder: Path, *, without: tuple[str, ...] = ()) -> "Project":
        """The same state elsewhere, times of files included."""
        ignore = shutil.ignore_patterns(*without)
        shutil.copytree(self.folder, folder, symlinks=True, dirs_exist_ok=True, ignore=ignore)
        return Project(folder)

    def change(self, *path: str, value: Any) -> None:
        """Set one value of params.yaml."""
        file = self.folder / "params.yaml"
        raw = inside = read(file)
        for step in path[:-1]:
            inside = inside[step]
        inside[path[-1]] = value
        write(file, raw)

    def pause(self, at_step: int) -> None:
        """Training waits before this step until `go_on`, and leaves the file `paused`.

        A pause is no change of a parameter.
        """
        loop = self.folder / "dac" / "training" / "loop.py"
        if PAUSE not in loop.read_text():
            loop.write_text(loop.read_text() + PAUSE)
        (self.folder / "pause").write_text(str(at_step))

    def go_on(self) -> None:
        (self.folder / "pause").unlink()

    def run(self, *command: str, check: bool = True, **environment: str) -> str:
        """What a command says. It must succeed, or with `check` off fail."""
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, env=warm(environment)
        )
        said = done.stdout + done.stderr
        assert not check or done.returncode == 0, said + self.logs()
        assert check or done.returncode != 0, said
        return said

    def snakemake(self, *options: str, check: bool = True, **environment: str) -> str:
        command = ("python", "-m", "snakemake", "--cores", "2", "--nocolor")
        return self.run(*command, *options, check=check, **environment)

    def build(self, *options: str, **environment: str) -> dict[str, int]:
        """Run, and count the jobs that were executed."""
        return executed(self.snakemake(*options, **environment))

    def planned(self, *options: str) -> dict[str, int]:
        """Dry run: the jobs that would be executed."""
        return stats(self.snakemake("-n", *options))

    def logs(self) -> str:
        return "".join(
            f"\n--- {path}\n{path.read_text()}" for path in sorted(self.folder.rglob("*.log"))
        )

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()


# --- processes ----------------------------------------------------------------------------------

# Added to a copy of dac/training/loop.py.
PAUSE = """

_true_rate = learning_rate


def learning_rate(settings: Train, step: int) -> float:
    from pathlib import Path

    while Path("pause").exists() and step >= int(Path("pause").read_text() or 0):
        Path("paused").touch()
        time.sleep(0.05)
    return _true_rate(settings, step)
"""


def variables(environment: dict[str, str]) -> dict[str, str]:
    """The environment of a shell in which ours is activated, with nothing of pytest's."""
    found = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "SNAKEMAKE"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{found['PATH']}"
    return found | {"PATH": path, "OMP_NUM_THREADS": "1"} | environment


def warm(environment: dict[str, str]) -> dict[str, str]:
    """The same with commands that start warm (warm_commands.py)."""
    found = variables(environment)
    return found | {"PATH": f"{warm_commands.folder()}{os.pathsep}{found['PATH']}"}


def read(path: Path) -> Any:
    return yaml.load(path.read_text(), yaml.CSafeLoader)


def write(path: Path, content: Any) -> None:
    path.write_text(yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False))


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(source, target)


def stats(said: str) -> dict[str, int]:
    """Counts of Snakemake's table of jobs, without the targets; empty when nothing is to do."""
    if "Nothing to be done" in said:
        return {}
    table = said.rpartition("Job stats:")[2].partition("total")[0]
    counts = {name: int(count) for name, count in re.findall(r"^(\S+) +(\d+)$", table, re.M)}
    return {name: count for name, count in counts.items() if name not in ("all", "count")}


def executed(said: str) -> dict[str, int]:
    """Counts of jobs that Snakemake started."""
    names = Counter(re.findall(r"^(?:local)?rule (\S+):$", said, re.M))
    return {name: count for name, count in names.items() if name != "all"}

"""Results that no one has computed: runs, tables and figures of a suite, and the page of them."""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw
from toy import called

from dac import aggregate, config
from dac.config import suites
from dac.config.suites import Key
from dac.io.files import write_json
from dac.report import __main__ as report

TOP = Path(__file__).parents[2]
COMMANDS = {"dac.aggregate": aggregate.main, "dac.report": report.main}
PARAMS = config.load(TOP / "params.yaml")
DOT = """digraph snakemake_dag {
    graph[bgcolor=white, margin=0];
    node[shape=box, style=rounded, fontname=sans,                 fontsize=10, penwidth=2];
    edge[penwidth=2, color=grey];
\t0[label = "all", color = "0.03 0.6 0.85", style="rounded"];
\t1[label = "table", color = "0.59 0.6 0.85", style="rounded"];
\t2[label = "evaluate", color = "0.28 0.6 0.85", style="rounded"];
\t3[label = "train", color = "0.64 0.6 0.85", style="rounded"];
\t4[label = "split", color = "0.51 0.6 0.85", style="rounded"];
\t5[label = "prepare", color = "0.41 0.6 0.85", style="rounded"];
\t6[label = "download", color = "0.23 0.6 0.85", style="rounded"];
\t7[label = "pretrain", color = "0.44 0.6 0.85", style="rounded"];
\t8[label = "figure", color = "0.31 0.6 0.85", style="rounded"];
\t9[label = "outputs", color = "0.00 0.6 0.85", style="rounded"];
\t10[label = "aggregate", color = "0.00 0.6 0.85", style="rounded"];
\t1 -> 0
\t10 -> 0
\t8 -> 0
\t2 -> 1
\t3 -> 2
\t7 -> 3
\t5 -> 3
\t4 -> 3
\t5 -> 4
\t6 -> 5
\t5 -> 7
\t2 -> 8
\t9 -> 8
\t3 -> 9
\t2 -> 10
}
"""


def fake(folder: Path, suite: str, every: int = 1) -> Path:
    """Runs, tables and figures of a suite in `folder`; of the runs every so many is left out."""
    results = suites.results(PARAMS, suite)
    keys = suites.all_runs(results.grids().values())
    metrics = {m for g in results.grids().values() for m in getattr(g, "metrics", {}).values()}
    for number, key in enumerate(keys):
        if every == 1 or number % every:
            fake_run(folder / "runs" / key.folder, key, metrics, number)
    for file in suites.targets(PARAMS, results)["pretraining"]:
        write_json(folder / file, record({"split_hash": None}, 1))
    options = ["--suite", suite, "--runs", "runs", "--out", "results/tables"]
    call(folder, "dac.aggregate", *options, "--params", str(TOP / "params.yaml"))
    for name in ("runs.csv", "metrics.json"):
        summary = folder / "results" / "summary" / suite / name
        summary.parent.mkdir(parents=True, exist_ok=True)
        (folder / "results" / "tables" / name).rename(summary)
    for number, (name, figure) in enumerate(results.figures.items()):
        fake_figure(folder / "results" / "figures" / name, figure.title, number)
    (folder / "rules.dot").write_text(DOT)
    return folder


def fake_run(folder: Path, key: Key, metrics: set[str], number: int) -> None:
    identity = PARAMS.expected(PARAMS.run(key.task, key.method, key.seed))
    run = identity | {"split_hash": f"{key.seed:02x}{abs(hash_of(key.task)):x}" * 4}
    tree: dict[str, Any] = {}
    for place in sorted(metrics):
        *path, last = place.split(".")
        inside = tree
        for step in path:
            inside = inside.setdefault(step, {})
        inside[last] = 0.6 + 0.35 * ((hash_of(key.method + place) + 7 * number) % 97) / 97
    write_json(folder / "metrics.json", {"run": run, "metrics": tree})
    write_json(folder / "run.json", record(run, number))


def hash_of(word: str) -> int:
    return int.from_bytes(word.encode()[-5:], "little")


def record(run: dict[str, Any], number: int) -> dict[str, Any]:
    packages = {"torch": "2.13.0", "torchvision": "0.28.0", "numpy": "2.4.6", "pillow": "13.0.0"}
    commit = "8275d26f1c0b4e5a9d7f3c2b1a0e9d8c7b6a5f4e" + ("+" if number == 3 else "")
    provenance = {
        "commit": commit,
        "python": "3.11.7",
        "packages": packages,
        "host": "Linux x86_64",
        "device": "NVIDIA A40" if number % 4 else "Intel(R) Xeon(R) CPU @ 2.80GHz",
    }
    return {
        "run": run,
        "provenance": provenance,
        "finished_unix": 1793800000.0 + 60 * number,
        "training_seconds": 21.5 + number,
        "views_per_second": 9000.0 + 10 * number,
        "peak_memory_bytes": 430_000_000 + number * 1_000_000,
    }


def fake_figure(path: Path, title: str, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", (1400 if number % 2 else 700, 520), "white")
    draw = ImageDraw.Draw(image)
    for at in range(20):
        height = 20 + (at * (7 + number) % 20) * 20
        draw.rectangle((60 + at * 30, 460 - height, 80 + at * 30, 460), fill="#3b6fb6")
    draw.line((50, 460, image.width - 20, 460), fill="black", width=3)
    draw.text((60, 480), title, fill="black", font_size=24)
    image.save(path.with_name(f"{path.name}.png"))
    image.save(path.with_name(f"{path.name}.pdf"))


def call(folder: Path, module: str, *options: str, check: bool = True) -> str:
    """What `python -m module` says on stderr; ours run in this process."""
    if module.startswith("dac."):
        return _call_here(folder, COMMANDS[module], options, check)
    command = [sys.executable, "-m", module, *options]
    environment = os.environ | {"PYTHONPATH": str(TOP)}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert (done.returncode == 0) == check, done.stdout + done.stderr
    return done.stderr


def _call_here(folder: Path, main: Callable[[], None], options: Sequence[str], check: bool) -> str:
    out, err = io.StringIO(), io.StringIO()
    with chdir(folder), redirect_stdout(out), redirect_stderr(err):
        code = called(main, *options)
    assert (code == 0) == check, out.getvalue() + err.getvalue()
    return err.getvalue()


def write(folder: Path, suite: str, *options: str) -> str:
    """The page of what lies in `folder`."""
    given = ["--suite", suite, "--params", str(TOP / "params.yaml"), *options]
    call(folder, "dac.report", *given)
    return (folder / "results" / "report.html").read_text(encoding="utf-8")

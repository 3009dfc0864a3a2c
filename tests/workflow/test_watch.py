"""`make demo`: a compact progress, a plain table at the end, and the log's name when it fails."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fake_results import fake
from waiting import wait_for

from dac.config import load, suites
from dac.config.suites import Key
from dac.io.errors import RunFailed
from dac.workflow import watch
from dac.workflow.watch import Training

TOP = Path(__file__).parents[2]
PARAMS = load(TOP / "params.yaml")
KEY, OTHER = Key("digits-6-30", "dac", 1), Key("digits-6-30", "fixmatch", 1)


def folder_of(top: Path, key: Key) -> Path:
    place = top / "runs" / key.folder
    place.mkdir(parents=True, exist_ok=True)
    return place


def test_steps_of_a_run_come_from_the_last_line_of_its_log(tmp_path: Path) -> None:
    training = Training({KEY: 500, OTHER: 500}, tmp_path / "runs")
    assert training.done(KEY) == 0
    assert training.note({KEY: 0, OTHER: 0}) == "0 of 2 runs"
    log = folder_of(tmp_path, KEY) / "train.log"
    log.write_text("on vm, GPU none\n")
    assert training.done(KEY) == 0
    log.write_text("x 100/500 steps 20%, loss 2\nx 300/500 steps 60%, loss 1\n")
    assert training.done(KEY) == 300
    (folder_of(tmp_path, OTHER) / "model.pt").touch()
    assert training.done(OTHER) == 500
    done = {key: training.done(key) for key in training.steps}
    assert training.note(done) == "1 of 2 runs, dac seed 1 at step 300"
    later = Training(training.steps, training.folder, since=log.stat().st_mtime + 1)
    assert later.note(done) == "1 of 2 runs", "its log is of an earlier build"
    tasks = Training({KEY: 500, Key("digits-6-60", "dac", 1): 500}, tmp_path / "runs")
    assert tasks.note(dict.fromkeys(tasks.steps, 0)).endswith(", digits-6-30 dac seed 1 at step 0")


def pretended(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Another program in place of Python, and so of Snakemake."""
    program = folder / "snakemake"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(watch, "SECONDS", 0.01)
    monkeypatch.chdir(folder)


def test_a_failure_names_the_log_and_shows_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretended(monkeypatch, tmp_path, "seq 100; echo the disk is full >&2; exit 3")
    log = tmp_path / "demo.log"
    with pytest.raises(RunFailed, match=rf"(?s)ended with 3.*{log}.*the disk is full"):
        watch.build("demo", Training({KEY: 500}, tmp_path / "runs"), log)
    assert log.read_text().startswith("1\n2\n"), "all of it is kept"


def test_a_failure_shows_what_the_failed_jobs_said_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, empty = "    log: lost.log (check log file(s)", "    log: empty.log (check log file(s)"
    script = f"echo '    log: train.log (check log file(s)'; echo '{lost}'; echo '{empty}'; exit 1"
    pretended(monkeypatch, tmp_path, script)
    (tmp_path / "train.log").write_text("step 1\nthe loss is not finite\n")
    (tmp_path / "empty.log").write_text("")
    with pytest.raises(RunFailed) as caught:
        watch.build("demo", Training({KEY: 500}, tmp_path / "runs"), tmp_path / "demo.log")
    assert str(caught.value).splitlines()[-2:] == [
        "train.log: the loss is not finite",
        "empty.log: (empty)",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of a parent's death")
def test_snakemake_dies_with_its_watcher(tmp_path: Path) -> None:
    program = tmp_path / "snakemake"
    program.write_text("#!/bin/sh\necho $$ > pid.new; mv pid.new pid; sleep 100\n")
    program.chmod(0o755)
    code = f"""
import sys
from pathlib import Path
from dac.workflow import watch
sys.executable = {str(program)!r}
watch.build("demo", watch.Training({{}}), Path("demo.log"))
"""
    own = os.environ | {"PYTHONPATH": str(TOP)}
    watcher = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=own)
    wait_for((tmp_path / "pid").exists)
    process = Path("/proc", (tmp_path / "pid").read_text().strip())
    watcher.kill()
    watcher.wait()
    wait_for(lambda: not process.exists() or ") Z " in (process / "stat").read_text())


def test_snakemake_is_asked_for_the_suite_and_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder_of(tmp_path, KEY)
    pretended(monkeypatch, tmp_path, f'echo "$@"; touch runs/{KEY.folder}/model.pt; sleep 1')
    watch.build("demo", Training.of(PARAMS, [KEY]), tmp_path / "demo.log")
    assert (tmp_path / "demo.log").read_text() == (
        "-m snakemake --profile profiles/local --nocolor --config suite=demo -- all runs report\n"
    )
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "preparing data and starting the first runs"
    assert shown[1] == "training 500/500 steps 100%, 1 of 1 runs"
    assert "tables, figures and the report" in shown[2]


def test_progress_never_goes_back_when_a_run_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Snakemake empties the log of a run that it starts again, long before the run has resumed."""
    place = folder_of(tmp_path, KEY)
    (place / "train.log").write_text("x 300/500 steps 60%, loss 1\n")
    script = f"""
: > runs/{KEY.folder}/train.log
echo "x 1/500 steps 0%" > runs/{OTHER.folder}/train.log
sleep 2
"""
    folder_of(tmp_path, OTHER)
    pretended(monkeypatch, tmp_path, script)
    watch.build("demo", Training({KEY: 500, OTHER: 500}), tmp_path / "demo.log")
    _, *others = capsys.readouterr().err.splitlines()
    assert others and all(line.startswith("training 301/1000 steps 30%") for line in others)


def test_the_tables_are_plain_text_with_a_star_for_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fake(tmp_path, "demo"))
    text, _ = watch.tables(PARAMS, suites.results(PARAMS, "demo"))
    assert text.startswith("digits: ")
    assert not set("<>|") & set(text) and "**" not in text
    rows = [line for line in text.splitlines() if line.startswith(("dac ", "fixmatch "))]
    assert len(rows) == 2 and all("±" in row for row in rows)
    assert text.count(" *") == 5 + 1, "one best value per column, and the line that explains it"


def test_the_command_ends_with_the_tables_and_their_meaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fake(tmp_path, "demo")
    shutil.copy(TOP / "params.yaml", folder)
    pretended(monkeypatch, folder, "exit 0")
    monkeypatch.setattr(sys, "argv", ["watch", "--suite", "demo"])
    watch.main()
    out, said = capsys.readouterr()
    assert "building the suite demo: 15 runs; details in logs/demo.log" in said
    assert out.startswith("digits: ") and out.endswith("results/report.html\n")


def test_the_end_says_what_the_numbers_mean_and_where_everything_is() -> None:
    lines = list(watch.meaning("demo"))
    assert len(lines) == 5
    assert "results/figures" in lines[-1] and "results/report.html" in lines[-1]
    assert all(len(line) <= 120 for line in lines)

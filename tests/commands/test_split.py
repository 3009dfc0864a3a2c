"""`python -m dac.split`: files that are written once, published lists, and bad arguments."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from split_labels import shuffled_labels

from dac import config, split
from dac.data import prepared, prepared_writer
from dac.data.split_file import load, train_labels
from dac.data.splits import describe
from dac.io.errors import exit_code_of

PARAMS = config.load(Path(__file__).parents[2] / "params.yaml")


def prepare(root: Path, name: str, values: np.ndarray, names: tuple[str, ...] = ()) -> None:
    blocks = [np.zeros((len(values), 3, 1, 1), dtype=np.uint8)]
    part = prepared_writer.NewPart(labels=values, side=1, blocks=blocks, files=names)
    classes = tuple(f"class {c}" for c in range(values.max() + 1))
    with prepared_writer.held(root, name) as folder:
        new = prepared_writer.NewSet(classes, {"train": part})
        prepared_writer.write(folder, name, new, recipe={})


def run_stage(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["split", *arguments])
    return exit_code_of(split.main)


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    prepare(tmp_path, "digits", shuffled_labels(10, 80).values)
    return tmp_path


def test_the_stage_writes_a_split_that_loads(
    digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--task", "digits-6-30", "--seed", "1", "--root", str(digits))
    assert run_stage(monkeypatch, *arguments) == 0
    path = digits / "splits/digits-6-30/seed1.json"
    labels = train_labels(prepared.load(digits, "digits"))
    loaded = load(path, "digits-6-30", PARAMS.task("digits-6-30"), 1, labels)
    assert len(loaded.labeled) == 30
    assert describe(loaded, labels.values) in capsys.readouterr().out


def test_the_stage_leaves_an_equal_file_untouched(
    digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = digits / "s.json"
    arguments = ("--task", "digits-6-30", "--seed", "1", "--root", str(digits), "--out", str(out))
    run_stage(monkeypatch, *arguments)
    before = (out.read_bytes(), out.stat().st_mtime_ns, out.stat().st_ino)
    assert run_stage(monkeypatch, *arguments) == 0
    assert (out.read_bytes(), out.stat().st_mtime_ns, out.stat().st_ino) == before
    assert "up to date" in capsys.readouterr().err


def test_the_stage_refuses_to_replace_a_differing_file(
    digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = digits / "s.json"
    common = ("--task", "digits-6-30", "--root", str(digits), "--out", str(out), "--seed")
    run_stage(monkeypatch, *common, "1")
    before = out.read_bytes()
    assert run_stage(monkeypatch, *common, "2") == 2
    message = capsys.readouterr().err
    assert (
        "differs from the split of digits-6-30 seed 2 in seed, labeled, unlabeled, hash" in message
    )
    assert f"Delete {out}" in message
    assert out.read_bytes() == before


def test_the_stage_refuses_to_replace_a_damaged_file(
    digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = digits / "s.json"
    arguments = ("--task", "digits-6-30", "--seed", "1", "--root", str(digits), "--out", str(out))
    run_stage(monkeypatch, *arguments)
    out.write_bytes(out.read_bytes()[:100])
    assert run_stage(monkeypatch, *arguments) == 2
    assert f"split file {out} cannot be read" in capsys.readouterr().err
    assert out.stat().st_size == 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--task", "digits-6-31", "--seed", "1"), "did you mean 'digits-6-30'?"),
        (("--task", "digits-6-30", "--seed", "-1"), "seed -1 is outside 0..4294967295"),
        (("--task", "digits-6-30", "--seed", "4294967296"), "seed 4294967296 is outside"),
        (("--task", "cifar-6-30", "--seed", "1"), "cifar10 is not prepared"),
    ],
)
def test_the_stage_explains_bad_arguments(
    arguments: tuple[str, ...],
    message: str,
    digits: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_stage(monkeypatch, *arguments, "--root", str(digits)) == 2
    assert message in capsys.readouterr().err


@pytest.fixture
def imagenet(tmp_path: Path) -> tuple[Path, str]:
    """A prepared ImageNet-30 of 20 images per class, params with the md5 of a list made here."""
    values = np.repeat(np.arange(30), 20)
    names = tuple(f"class{c}/n{c:02}_{i % 20}.JPEG" for i, c in enumerate(values))
    prepare(tmp_path, "imagenet30", values, names)
    listed = "".join(
        f"data/imagenet30/one_class_train/class{c}/n{c:02}_{max(0, i - 1)}.JPEG {c}\n"
        for c in range(20)
        for i in range(13)
    )
    old = PARAMS.task("imagenet-20-p1").labeled_list
    assert old is not None
    text = PARAMS.path.read_text()
    text = text.replace(old.md5, hashlib.md5(listed.encode()).hexdigest())
    (tmp_path / "params.yaml").write_text(text)
    return tmp_path, listed


def run_imagenet(root: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    arguments = ("--task", "imagenet-20-p1", "--seed", str(seed), "--root", str(root))
    assert run_stage(monkeypatch, *arguments, "--params", str(root / "params.yaml")) == 0
    content: dict[str, Any] = json.loads(
        (root / f"splits/imagenet-20-p1/seed{seed}.json").read_text()
    )
    return content


def test_a_published_list_gives_every_seed_the_same_labels(
    imagenet: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, listed = imagenet
    path = root / "raw/imagenet30/filelist/train_labeled_p1.txt"
    path.parent.mkdir(parents=True)
    path.write_text(listed)
    one, two = run_imagenet(root, 1, monkeypatch), run_imagenet(root, 2, monkeypatch)
    expected = [20 * c + max(0, i - 1) for c in range(20) for i in range(13)]
    assert one["labeled"] == two["labeled"] == expected
    assert one["labeled_source"] == "published list"
    assert one["counts"] == {"labeled": 260, "labeled_distinct": 240, "unlabeled": 600 - 240}


def test_a_list_with_another_md5_is_refused(
    imagenet: tuple[Path, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root, listed = imagenet
    path = root / "raw/imagenet30/filelist/train_labeled_p1.txt"
    path.parent.mkdir(parents=True)
    path.write_text(listed + "\n")
    arguments = ("--task", "imagenet-20-p1", "--seed", "1", "--root", str(root))
    assert run_stage(monkeypatch, *arguments, "--params", str(root / "params.yaml")) == 2
    assert f"{path} has md5" in capsys.readouterr().err


def test_without_the_list_labels_are_drawn_and_the_stage_says_so(
    imagenet: tuple[Path, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root, _ = imagenet
    one, two = run_imagenet(root, 1, monkeypatch), run_imagenet(root, 2, monkeypatch)
    assert "train_labeled_p1.txt does not exist: labeled images are drawn" in (
        capsys.readouterr().err
    )
    assert one["labeled_source"] == "drawn"
    assert one["counts"]["labeled_distinct"] == 260
    assert one["labeled"] != two["labeled"]

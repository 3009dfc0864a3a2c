"""Files that are not parameters, or not YAML: one clear message each."""

from pathlib import Path

import pytest
from changed_params import PATH

from dac import config
from dac.io.errors import UserError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"suite: demo\nsuite: demo\n", "the key 'suite' appears twice"),
        (b"train:\n  a: 1\n  a: 2\n", "the key 'a' appears twice"),
        (b"suite: [demo\n", "cannot be read as YAML: .*line 2"),
        (b"suite: \t- x\n\t y", "cannot be read as YAML"),
        (b"suite: d\xe9mo\n", r"is not UTF-8 text \(byte 8\); save it as UTF-8"),
        (b"", "is empty, expected the sections of the shipped params.yaml"),
        (b"# only a comment\n", "is empty"),
        (b"- a\n- b\n", "holds a list, expected the sections"),
        (b"hello\n", "holds a str, expected the sections"),
        (b"suite: 2024-13-45\n", "cannot be read as YAML: month must be in"),
        (b"suite: &me [*me]\n", "contains itself"),
        (b"suite: !!python/object:os.system x\n", "could not determine a constructor"),
        (b"? [a, b]\n: c\n", "cannot be read as YAML"),
    ],
)
def test_a_file_that_is_not_parameters_gives_one_clear_message(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "params.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"(?s){path}.*{message}"):
        config.load(path)


def test_a_missing_file_says_where_to_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist; run from the project's top folder"):
        config.load(tmp_path / "params.yaml")


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Is a directory"):
        config.load(tmp_path)


def test_yaml_merge_keys_still_work(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    text = PATH.read_text().replace(
        "semi-inat-2021: *at-224-px", "semi-inat-2021: {<<: *at-224-px, mu: 3}"
    )
    path.write_text(text)
    train = config.load(path).run("semi-inat", "dac", 1).train
    assert (train.mu, train.epochs) == (3, 100)

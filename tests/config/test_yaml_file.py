"""Files that are not parameters, or not YAML: one clear message each."""

import re
from pathlib import Path

import pytest
from changed_params import PATH

from dac import config
from dac.config import yaml_file
from dac.config.yaml_file import read_yaml
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
        (b"suite: 2024-13-45\n", "cannot be read as YAML: '2024-13-45' is not of type timestamp"),
        (b"suite: &me [*me]\n", r"\*me contains itself; remove it.*line 1, column 13"),
        (b"suite: &me {a: {b: *me}}\n", r"\*me contains itself"),
        (b"suite: *me\n", "found undefined alias"),
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


def bomb(form: str) -> bytes:
    """Sixty lines that are 2 ** 60 values."""
    lines = [f"a{i}: &a{i} {form.replace('?', f'*a{i - 1}')}" for i in range(1, 60)]
    return "\n".join(["a0: &a0 {x: 1}", *lines, ""]).encode()


ENDLESS = {
    "aliases in lists": (bomb("[?, ?]"), "more than 100,000 values, aliases .* line 15"),
    "aliases in mappings": (bomb("{b: ?, c: ?}"), "more than 100,000 values"),
    "merge keys": (bomb("{<<: [?, ?]}"), "more than 100,000 values"),
    "many values": (b"a: [" + b"1," * 100_000 + b"]", "more than 100,000 values"),
    "nested lists": (b"a: " + b"[" * 200_000, "nested more than 100 levels deep.*line 1"),
    "nested mappings": (b"a: " + b"{a: " * 3000 + b"1" + b"}" * 3000, "more than 100 levels"),
    "indented mappings": (b"".join(b" " * i + b"a:\n" for i in range(1500)), "100 levels"),
    "a large file": (b"#" * 10_000_001, "is larger than 10 MB; give a smaller file"),
    "a long number": (b"a: " + b"9" * 5000, "a number has more than 1,000 digits.*line 1"),
    "a long hexadecimal": (b"a: 0x" + b"f" * 5000, "a number has more than 1,000 digits"),
    "a long sexagesimal": (b"a: 1" + b":10" * 2000, "a number has more than 1,000 digits"),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_a_file_without_end_is_refused_before_it_is_built(what: str, tmp_path: Path) -> None:
    content, message = ENDLESS[what]
    path = tmp_path / "params.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"(?s){path}.*({message})"):
        config.load(path)


def test_aliases_that_are_nested_deeper_than_their_text_are_refused(tmp_path: Path) -> None:
    lines = [f"a{i}: &a{i} {'[' * 30}*a{i - 1}{']' * 30}" for i in range(1, 5)]
    path = tmp_path / "params.yaml"
    path.write_text("\n".join(["a0: &a0 x", *lines]))
    with pytest.raises(UserError, match="nested more than 100 levels deep"):
        config.load(path)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("!!int ''", "int"),
        ("!!int _", "int"),
        ("!!int '-'", "int"),
        ("!!int 0b", "int"),
        ("!!float ''", "float"),
        ("!!float _", "float"),
        ("!!bool x", "bool"),
        ("!!timestamp x", "timestamp"),
        ("2024-01-01 00:00:00 +99:99", "timestamp"),
    ],
)
def test_a_value_that_is_not_of_its_tag_is_named_with_its_place(
    value: str, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(f"# a comment\nsuite: {value}\n")
    text = re.sub(r"^!!\w+ |'", "", value)
    message = f"{text!r} is not of type {kind}; correct it, or put it in quotes"
    with pytest.raises(UserError, match=f'{re.escape(message)}\\s+in "{path}", line 2, column 8'):
        config.load(path)


@pytest.mark.parametrize("value", ["!!map [a]", "!!set [a]", "!!seq {a: 1}", "!!str [a]"])
def test_a_collection_that_is_not_of_its_tag_is_named_with_its_place(
    value: str, tmp_path: Path
) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(f"suite: {value}\n")
    with pytest.raises(UserError, match=r"(?s)expected a \w+ node, but found .*line 1, column 8"):
        config.load(path)


def test_the_shipped_file_is_far_from_every_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 10 * PATH.stat().st_size < yaml_file.MOST_BYTES
    monkeypatch.setattr(yaml_file, "MOST_NODES", yaml_file.MOST_NODES // 10)
    monkeypatch.setattr(yaml_file, "MOST_LEVELS", yaml_file.MOST_LEVELS // 10)
    assert read_yaml(PATH)


def test_many_keys_are_read_and_a_key_that_appears_twice_is_still_found(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    lines = [f"k{i}: 1\n" for i in range(20_000)]
    path.write_text("".join(lines))
    with pytest.raises(UserError, match="has 20012 fault"):
        config.load(path)
    path.write_text("".join([*lines, "k7: 2\n"]))
    with pytest.raises(UserError, match=r"(?s)the key 'k7' appears twice.*line 20001, column 1"):
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


def test_a_mapping_that_merges_and_overrides_may_itself_be_merged(tmp_path: Path) -> None:
    """The outer mapping is built first, and merging writes into the nodes of the inner one."""
    path = tmp_path / "params.yaml"
    path.write_text("d: &d {mu: 1}\nx: {y: {z: &c {<<: *d, mu: 3}}}\np: {<<: *c, nu: 4}\n")
    found = read_yaml(path)
    assert found["x"]["y"]["z"] == {"mu": 3}
    assert found["p"] == {"mu": 3, "nu": 4}

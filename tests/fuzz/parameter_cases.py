"""`params.yaml` with wrong values, missing and misspelled keys, broken text and traps of YAML."""

import copy
import math
import random
from pathlib import Path
from typing import Any

import yaml
from changed_params import PATH, RAW
from verdicts import ACCEPTED, REFUSED, Wrong

from dac import plan
from dac.config import Params, load, suites
from dac.io.errors import UserError

VALUES = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2,
        10**6,
        10**18,
        10**400,
        -(10**18),
        0.0,
        -0.5,
        0.5,
        1e-300,
        1e308,
    ),
    *(
        math.nan,
        math.inf,
        -math.inf,
        "",
        " ",
        "x",
        "1",
        "1e-3",
        "yes",
        "a\nb",
        "é",
        "/",
        "..",
        "x" * 5000,
    ),
    *([], [1], ["x"], [None], {}, {"x": 1}, {1: 2}, [[]], {"": ""}, {"base": "dac"}, ["x"] * 3000),
)
SCALARS = (
    *(
        '!!int ""',
        '!!float "_"',
        "!!bool x",
        "!!timestamp x",
        "!!map [a]",
        "!!python/name:os.system",
    ),
    *("*nobody", "&a [*a]", "{", "[", '"', "- -", "? ", "2001-99-99", "0x", "1_000_", "~", "<<: x"),
    *(
        "!!binary x",
        "!!set {a}",
        "!!omap [a]",
        "!!null x",
        "%YAML 9.9",
        "\t",
        "\x07",
        "\ud800",
        "[",
    ),
)
BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(9)
)


class Parameters:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "params.yaml"
        self.text = PATH.read_text()
        self.pristine = load(PATH)

    def case(self, draw: random.Random) -> str:
        change = draw.choice(
            (self._tree, self._tree, self._tree, self._text, self._scalar, self._large)
        )
        self.path.write_bytes(change(draw).encode(errors="surrogatepass"))
        try:
            params = load(self.path)
            self._check(params)
            self._use(params, draw)
        except UserError as error:
            if len(str(error)) > 100_000:
                raise Wrong(f"a message of {len(str(error))} characters") from None
            return REFUSED
        return ACCEPTED

    def _check(self, params: Params) -> None:
        """What was accepted must be what the file says."""
        is_same = params.file == self.pristine.file
        if is_same and not _equal(_meaning(self.path.read_text()), _meaning(self.text)):
            raise Wrong("a change of the file was accepted and ignored")

    def _use(self, params: Params, draw: random.Random) -> None:
        suite = draw.choice(sorted(params.file.suites))
        results = suites.results(params, suite)
        keys = suites.all_runs(results.grids().values())
        for key in draw.sample(keys, min(5, len(keys))):
            params.run(key.task, key.method, key.seed)
        plan.describe(params, suite)

    # --- changes ----------------------------------------------------------------------------------

    def _tree(self, draw: random.Random) -> str:
        """A value, a key or an entry of the tree is another one."""
        raw = copy.deepcopy(RAW)
        for _ in range(draw.choice((1, 1, 1, 2, 5))):
            parent, key = _place(raw, draw)
            match draw.choice(("nudge", "nudge", "value", "value", "remove", "rename", "copy")):
                case "nudge" if isinstance(parent[key], int | float):
                    parent[key] = draw.choice((parent[key] * 2, parent[key] + 1, parent[key] / 2))
                case "value":
                    parent[key] = draw.choice(VALUES)
                case "remove":
                    del parent[key]
                case "rename" if isinstance(parent, dict):
                    parent[draw.choice((f"{key}x", str(key).upper(), 7, ""))] = parent.pop(key)
                case _:
                    other, name = _place(raw, draw)
                    parent[key] = copy.deepcopy(other[name])
        return str(yaml.safe_dump(_lists(raw), sort_keys=False))

    def _text(self, draw: random.Random) -> str:
        """Lines are removed, doubled, moved, shifted or cut."""
        lines = self.text.split("\n")
        for _ in range(draw.choice((1, 1, 2, 5))):
            at = draw.randrange(len(lines))
            match draw.choice(
                ("remove", "double", "move", "left", "right", "cut", "insert", "end")
            ):
                case "remove":
                    del lines[at]
                case "double":
                    lines.insert(at, lines[at])
                case "move":
                    lines.insert(draw.randrange(len(lines)), lines.pop(at))
                case "left":
                    lines[at] = lines[at].removeprefix("  ")
                case "right":
                    lines[at] = "  " + lines[at]
                case "cut":
                    lines[at] = lines[at][: draw.randrange(len(lines[at]) + 1)]
                case "insert":
                    place = draw.randrange(len(lines[at]) + 1)
                    lines[at] = (
                        lines[at][:place]
                        + draw.choice(":#-{}[]&*!|>'\"%@\t\0é")
                        + lines[at][place:]
                    )
                case "end":
                    lines = lines[: at + 1]
        return "\n".join(lines)

    def _scalar(self, draw: random.Random) -> str:
        """A value is replaced by text that YAML reads in a way of its own."""
        lines = self.text.split("\n")
        places = [
            i for i, line in enumerate(lines) if ": " in line and not line.lstrip().startswith("#")
        ]
        at = draw.choice(places)
        lines[at] = lines[at].split(": ")[0] + ": " + draw.choice(SCALARS)
        return "\n".join(lines)

    def _large(self, draw: random.Random) -> str:
        """Bombs, deep nesting, many keys, long chains."""
        chain = "".join(f"  c{i}: {{base: c{i + 1}}}\n" for i in range(3000))
        many = "".join(f"  k{i}: {{base: dac}}\n" for i in range(draw.choice((300, 20_000))))
        return draw.choice(
            (
                self.text + BOMB,
                self.text + "deep: " + "[" * draw.choice((100, 5000, 100_000)),
                self.text + "deep: " + "{a: " * draw.choice((100, 5000)),
                self.text.replace("\nmethods:\n", f"\nmethods:\n{chain}", 1),
                self.text.replace("\nmethods:\n", f"\nmethods:\n{many}", 1),
                self.text * 2,
                "",
                "- a\n",
                "just text",
            )
        )


def _place(raw: Any, draw: random.Random) -> tuple[Any, Any]:
    """A container inside the tree, and one of its keys."""
    inside = raw
    while True:
        if isinstance(inside, dict):
            key: Any = draw.choice(list(inside)) if inside else None
        else:
            key = draw.randrange(len(inside)) if inside else None
        if key is None:
            return raw, draw.choice(list(raw))
        value = inside[key]
        if isinstance(value, tuple):
            value = inside[key] = list(value)
        if not isinstance(value, dict | list) or not value or draw.random() < 0.15:
            return inside, key
        inside = value


def _lists(value: Any) -> Any:
    """Tuples as lists, which YAML can write."""
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value


def _meaning(text: str) -> Any:
    """The tree of a file; a set with nothing to download may be left out of `download.sets`."""
    tree = yaml.load(text, yaml.CSafeLoader)
    sets = tree["download"]["sets"]
    tree["download"]["sets"] = {name: entry for name, entry in sets.items() if entry != {}}
    return tree


def _equal(a: Any, b: Any) -> bool:
    """Equality that tells True from 1, but not 1 from 1.0: a number is a number in the file."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)

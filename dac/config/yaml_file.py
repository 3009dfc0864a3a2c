"""Read a YAML file strictly: no duplicate keys, no alias that contains itself, no endless file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dac.config.messages import short
from dac.io.errors import UserError

# The shipped file has 36 kB and, with its aliases written out, about 2,800 values on 8 levels.
MOST_BYTES, MOST_NODES, MOST_LEVELS = 10_000_000, 100_000, 100
MOST_DIGITS = 1000  # of a number; Python does not print one of 4,301
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is six times as fast


class _StrictLoader(Loader):
    """Refuse a duplicate key instead of keeping the last, and say where a value is wrong."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        if node.tag in NUMBERS and len(node.value) > MOST_DIGITS:
            raise _error(node, f"a number has more than {MOST_DIGITS:,} digits")
        try:
            return super().construct_object(node, deep)
        except (AttributeError, LookupError, TypeError, ValueError):  # PyYAML trusts the tag
            kind = node.tag.rpartition(":")[2]
            advice = "correct it, or put it in quotes"
            raise _error(node, f"{short(node.value)} is not of type {kind}; {advice}") from None

    def flatten_mapping(self, node: Any) -> None:
        """Merge what `<<` names. The node gets the merged keys, too, so it is checked only once."""
        if not hasattr(node, "is_checked"):
            node.is_checked = True
            _check_keys(node)
        super().flatten_mapping(node)


def _check_keys(node: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen:
                raise _error(key, f"the key {short(key.value)} appears twice")
            seen.add(key.value)


def _error(found: Any, problem: str) -> yaml.MarkedYAMLError:
    """An error at the place of a node or an event."""
    return yaml.MarkedYAMLError(problem=problem, problem_mark=found.start_mark)


def read_yaml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise UserError(f"{path} is larger than {MOST_BYTES // 10**6} MB; give a smaller file")
        text = content.decode("utf-8")
        _check_extent(text)
        found = _freeze(yaml.load(text, _StrictLoader))
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist; run from the project's top folder or give --params FILE"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); give a file") from None
    except yaml.YAMLError as error:
        what = str(error).replace("<unicode string>", str(path))
        raise UserError(f"{path} cannot be read as YAML: {what}; fix it there") from None
    if not isinstance(found, dict):
        kind = "is empty" if found is None else f"holds a {_kind(found)}"
        raise UserError(f"{path} {kind}, expected the sections of the shipped params.yaml")
    return found


def _kind(value: Any) -> str:
    return "list" if isinstance(value, tuple) else type(value).__name__


# --- before anything is built -------------------------------------------------------------------


@dataclass(eq=False)
class _Part:
    """A node with all that is below it, aliases written out."""

    nodes: int = 1
    levels: int = 1

    def take(self, part: "_Part") -> None:
        self.nodes += part.nodes
        self.levels = max(self.levels, part.levels + 1)


def _check_extent(text: str) -> None:
    """Refuse what takes endless time or memory to build: few lines of aliases are billions of
    nodes, and libyaml follows nested lists until the process crashes."""
    anchors: dict[str | None, _Part] = {}
    around = [_Part()]  # the document, and every list and mapping that is open
    for event in yaml.parse(text, Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            part = around.pop()
        elif isinstance(event, yaml.AliasEvent):
            part = anchors.get(event.anchor, _Part())
            if part in around:
                raise _error(event, f"*{event.anchor} contains itself; remove it")
        elif isinstance(event, yaml.NodeEvent):
            part = _Part()
            anchors |= {event.anchor: part} if event.anchor else {}
        else:
            continue  # the begin or end of the stream or the document
        if isinstance(event, yaml.CollectionStartEvent):
            around.append(part)
        else:
            around[-1].take(part)
        if len(around) + part.levels - 1 > MOST_LEVELS:
            raise _error(event, f"nested more than {MOST_LEVELS} levels deep")
        if around[-1].nodes > MOST_NODES:
            raise _error(event, f"more than {MOST_NODES:,} values, aliases (*name) written out")


def _freeze(value: Any) -> Any:
    """Turn lists into tuples, which the frozen models accept under strict typing."""
    if isinstance(value, dict):
        return {key: _freeze(item) for key, item in value.items()}
    return tuple(_freeze(item) for item in value) if isinstance(value, list) else value

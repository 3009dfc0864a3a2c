"""Read a YAML file strictly: no duplicate keys, no alias that contains itself."""

from pathlib import Path
from typing import Any

import yaml

from dac.io.errors import UserError


class _StrictLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Refuse a duplicate key instead of keeping the last. libyaml is six times as fast."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} appears twice", node.start_mark
                )
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _StrictLoader)
        frozen = _freeze(raw)
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist; run from the project's top folder or give --params FILE"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from None
    except RecursionError:
        raise UserError(f"{path} contains itself through an alias (*name); remove it") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); give a file") from None
    except (ValueError, yaml.YAMLError) as error:  # ValueError: an impossible date or number
        raise UserError(f"{path} cannot be read as YAML: {error}; fix it there") from None
    if not isinstance(frozen, dict):
        found = "is empty" if frozen is None else f"holds a {type(raw).__name__}"
        raise UserError(f"{path} {found}, expected the sections of the shipped params.yaml")
    return frozen


def _freeze(value: Any) -> Any:
    """Turn lists into tuples, which the frozen models accept under strict typing."""
    if isinstance(value, dict):
        return {key: _freeze(item) for key, item in value.items()}
    return tuple(_freeze(item) for item in value) if isinstance(value, list) else value

"""Checkpoints that can be trusted: whole or absent, checked by hash, loaded without running code.

A file is `last-<step>-<hash>.pt`: the name carries its own checksum and appears by one rename. The
two newest are kept, so a damaged one falls back to its predecessor. What is damaged is renamed to
`damaged-...`, is never deleted and does not count as one of the two.
"""

import hashlib
import io
import re
import secrets
import sys
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dac.io.errors import BAD_PLACE, UserError, reason, remedy
from dac.io.files import regular, remove_leftovers, write_bytes
from dac.io.progress import say

KEPT = 2
NAME = re.compile(r"last-(\d{9})-([0-9a-f]{16})\.pt")


def to_bytes(state: dict[str, Any]) -> bytes:
    """Equal states give equal bytes, wherever their tensors are and however they came there."""
    buffer = io.BytesIO()
    torch.save(_plain(state), buffer)
    return buffer.getvalue()


def _plain(tree: Any) -> Any:
    """Tensors on the host, in plain containers; equal texts are one object, as pickle notes."""
    match tree:
        case Tensor():
            return tree.detach().cpu()
        case str():
            return sys.intern(tree)
        case dict():
            return {_plain(key): _plain(value) for key, value in tree.items()}
        case list() | tuple():
            return type(tree)(map(_plain, tree))
        case _:
            return tree


def from_file(path: Path) -> dict[str, Any]:
    """A saved state: tensors and plain containers only; other content is refused, not executed."""
    try:
        _check_sums(regular(path))
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"checkpoint {path} does not exist; train first") from None
    except Exception as error:  # broken bytes can raise anything
        step = remedy(error, "delete it and train again")
        raise UserError(f"checkpoint {path} cannot be read ({reason(error)}); {step}") from error
    if not isinstance(state, dict) or not isinstance(state.get("run"), dict):
        raise UserError(f"{path} is no checkpoint of dac; delete it and train again")
    return state


def _check_sums(path: Path) -> None:
    """torch.load does not look at the checksums of the zip file that torch.save writes."""
    with zipfile.ZipFile(path) as file:
        if (damaged := file.testzip()) is not None:
            raise zipfile.BadZipFile(f"{damaged} does not have its checksum")


def save(folder: Path, step: int, state: dict[str, Any]) -> Path:
    """Write the state of `step`; it and the newest of the earlier ones are kept.

    A later one was passed over by `newest` and could not be renamed: it stays, but does not count.
    """
    content = to_bytes(state)
    path = folder / f"last-{step:09d}-{_hash(content)}.pt"
    write_bytes(path, content)
    earlier = [old for old in saved(folder) if old != path and _step(old) <= step]
    _remove(earlier[KEPT - 1 :])
    remove_leftovers(folder)
    return path


def drop(folder: Path) -> None:
    """Remove all states, and what killed writers have left."""
    _remove(saved(folder))
    remove_leftovers(folder)


def _remove(paths: list[Path]) -> None:
    for path in paths:
        with suppress(OSError):  # a folder of that name is not ours
            path.unlink()


def _step(path: Path) -> int:
    return int(path.name.split("-")[1])


def saved(folder: Path) -> list[Path]:
    """Checkpoints of a working folder, newest first."""
    return sorted((p for p in folder.glob("last-*.pt") if NAME.fullmatch(p.name)), reverse=True)


def newest(folder: Path) -> dict[str, Any] | None:
    """The newest intact checkpoint, or None. Damaged ones are reported and set aside; one that the
    system does not let us read may be whole, and training never starts over because of it."""
    refused = None
    for path in saved(folder):
        match = NAME.fullmatch(path.name)
        try:
            if match and _hash(regular(path).read_bytes()) == match[2]:
                return from_file(path)
            fault = "content and name disagree"
        except OSError as error:
            fault = reason(error)
            if error.errno is not None and error.errno not in BAD_PLACE:
                advice = remedy(error, "")
                refused = refused or f"checkpoint {path} cannot be read ({fault}); {advice}"
                say(f"checkpoint {path} cannot be read ({fault}); trying the one before")
                continue
        say(f"checkpoint {path} is damaged ({fault}); {_set_aside(path)}; trying the one before")
    if refused is not None:
        raise UserError(refused)
    return None


def _set_aside(path: Path) -> str:
    """Rename what is no checkpoint, whatever it is, and say what was done."""
    aside = path.with_name(f"damaged-{secrets.token_hex(4)}-{path.name}")
    try:
        path.rename(aside)
    except OSError as error:
        return f"it cannot be set aside ({reason(error)})"
    return f"set aside as {aside.name}"


def misfit(found: Any, wanted: Mapping[str, Tensor]) -> str | None:
    """How saved tensors differ from those wanted, in names and shapes; None if they do not."""
    if not isinstance(found, Mapping):
        return "no tensors"
    for name, tensor in wanted.items():
        there = found.get(name)
        if not isinstance(there, Tensor):
            return f"{name} is missing"
        if there.shape != tensor.shape:
            return f"{name} is {tuple(there.shape)}, expected {tuple(tensor.shape)}"
    unknown = [str(name) for name in found if name not in wanted]
    return f"{unknown[0]} has no place" if unknown else None


def weights_hash(weights: dict[str, Tensor]) -> str:
    """sha256 of names, types, shapes and values, independent of the file format."""
    total = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        total.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]

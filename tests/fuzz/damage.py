"""Seeded damage to bytes, paths and names."""

import os
import random
import shutil
from pathlib import Path

BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"  # where str.splitlines breaks
ODD = (
    "=1+1",
    "+x",
    "-x",
    "@x",
    "a,b",
    'a"b',
    "a'b",
    " a ",
    "ä",
    "日本",
    "‮x",
    "unknown",
    "%s",
    "{x}",
)


def bytes_of(content: bytes, draw: random.Random) -> bytes:
    """One to four changes: cut, flip, insert, remove, repeat, zero."""
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(content) + 1)
        length = draw.choice((1, 2, 8, 100, 1000))
        before, rest = content[:at], content[at:]
        match draw.choice(("cut", "flip", "insert", "remove", "repeat", "zero")):
            case "cut":
                content = before
            case "flip":
                content = before + bytes([draw.randrange(256)]) + rest[1:]
            case "insert":
                content = before + draw.randbytes(length) + rest
            case "remove":
                content = before + rest[length:]
            case "repeat":
                content = before + before[-length:] + rest
            case "zero":
                content = before + bytes(length) + rest[length:]
    return content


def file_at(path: Path, draw: random.Random) -> None:
    """Other bytes, an empty file, or no file at all in the place of a file."""
    content = path.read_bytes()
    path.unlink()
    others = ("empty", "folder", "pipe", "dangling", "loop", "gone", "junk")
    match draw.choice(("bytes",) * 6 + others):
        case "bytes":
            path.write_bytes(bytes_of(content, draw))
        case "empty":
            path.write_bytes(b"")
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "dangling":
            path.symlink_to("nowhere")
        case "loop":
            path.symlink_to(path.name)
        case "junk":
            path.write_bytes(draw.randbytes(draw.choice((1, 100, 10_000))))


def restore(path: Path, pristine: Path) -> None:
    """Put the file, or the folder, back as it was."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if pristine.is_dir():
        shutil.copytree(pristine, path, symlinks=True)
    else:
        shutil.copy2(pristine, path)


def name(draw: random.Random) -> str:
    """A name that a file system allows; bytes that are not UTF-8 are surrogates, as in `os`."""
    letters = [draw.choice("abcXYZ019._- ") for _ in range(draw.randint(1, 8))]
    for _ in range(draw.randint(0, 2)):
        letters.insert(draw.randrange(len(letters) + 1), draw.choice((*BREAKS, *ODD)))
    if draw.random() < 0.1:
        letters.append(os.fsdecode(bytes([draw.choice((0x80, 0xFF, 0xC3))])))
    found = "".join(letters)
    return found if found.strip(".") else found + "x"

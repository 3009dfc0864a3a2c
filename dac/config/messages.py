"""Turn a failed validation into a sentence: the place, the value found, what was expected."""

import reprlib
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from dac.config.base import ONE_LINE
from dac.io.suggestions import Misnamed

Place = tuple[Any, ...]
Message = str | Misnamed
Fault = tuple[Place, Message]
KEY = "[key]"  # the end of pydantic's path when the key itself is wrong, not its value
MOST_CHARACTERS = 80  # of a value in a message
_REPR = reprlib.Repr()
_REPR.maxlevel = 3
_REPR.maxdict = _REPR.maxlist = _REPR.maxtuple = _REPR.maxset = 30
_REPR.maxstring = _REPR.maxlong = _REPR.maxother = MOST_CHARACTERS


def faults_of(model: type[BaseModel], values: Any) -> list[Fault]:
    """Return what is wrong with `values` as a `model`, each fault with its place."""
    try:
        model.model_validate(values)
    except ValidationError as error:
        return [_worded(model, found) for found in error.errors()]
    return []


def difference_faults(
    model: type[BaseModel], defaults: Mapping[Any, Any], differences: Any
) -> list[Fault]:
    """Like `faults_of`, for values that only give the differences from the defaults.

    Differences that are not a mapping are reported with the section around them, not here.
    """
    if not isinstance(differences, dict):
        return []
    found = faults_of(model, {**defaults, **differences})
    return [(place, message) for place, message in found if not place or place[0] in differences]


def _worded(model: type[BaseModel], error: Any) -> Fault:
    place, found, kind, message = error["loc"], error["input"], error["type"], error["msg"]
    if place and place[-1] == KEY:
        place = place[:-1]
        if kind != "literal_error":
            return place, _name_message(error)
        kind = "extra_forbidden"
    if kind == "extra_forbidden":
        return place, Misnamed("unknown key", place[-1], _keys(_type_at(model, place[:-1])))
    if kind == "missing":
        return place, "missing; add it (the shipped params.yaml has every key)"
    if kind in ("model_type", "dict_type") and found is None:
        return place, "expected a mapping, found nothing; indent what belongs to it below it"
    if kind in ("model_type", "dict_type"):
        return place, f"expected a mapping, found {short(found)}"
    if kind == "literal_error":
        valid = get_args(_type_at(model, place))
        text = f"{short(found)} is not one of {error['ctx']['expected']}"
        return place, Misnamed(text, found, valid)
    if error.get("ctx", {}).get("pattern") == ONE_LINE:
        return place, f"expected one line without control characters, found {short(found)}"
    if isinstance(found, str) and kind in ("float_type", "int_type"):
        text = f"{short(found)} is a string, expected a number (YAML needs 1.0e-3, not 1e-3)"
        return place, text
    return place, f"{message[0].lower()}{message[1:]}, found {short(found)}"


def _name_message(error: Any) -> str:
    """What is wrong with a key that the file chooses itself: the name of a task, a heading."""
    found, kind, limits = short(error["input"]), error["type"], error.get("ctx", {})
    if limits.get("pattern") == ONE_LINE:
        return f"the name {found} is not allowed; use one line without control characters"
    if kind == "string_pattern_mismatch":
        return f"the name {found} is not allowed; names must match {limits['pattern']}"
    if kind == "string_too_long":
        return f"the name {found} is too long; use at most {limits['max_length']} characters"
    return f"the name {found} is not a string; put it in quotes"


def one_line(fault: Fault) -> str:
    """A fault as text: the place, then the message."""
    place, message = fault
    steps = [step if _is_plain(step) else short(step) for step in place]
    return f"{'.'.join(steps)}: {message}"


def _is_plain(step: Any) -> bool:
    return isinstance(step, str) and step.isprintable() and len(step) <= MOST_CHARACTERS


def short(value: Any) -> str:
    """The value as Python writes it, cut where it is long."""
    text = _REPR.repr(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def _type_at(model: type[BaseModel], place: Place) -> Any:
    """Return the type at `place` inside `model`."""
    current: Any = model
    for step in place:
        if isinstance(current, type) and issubclass(current, BaseModel):
            field = current.model_fields.get(step)
            current = field.annotation if field else None
        elif get_origin(current) is dict:
            current = get_args(current)[1]
        elif get_origin(current) is tuple:
            current = get_args(current)[0]
        current = _bare(current)
    return current


def _bare(annotation: Any) -> Any:
    """Strip `Annotated` and `| None`."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return _bare(next(a for a in get_args(annotation) if a is not types.NoneType))
    return annotation


def _keys(annotation: Any) -> list[str]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return list(annotation.model_fields)
    if get_origin(annotation) is dict:
        key = _bare(get_args(annotation)[0])
        return list(get_args(key)) if get_origin(key) is Literal else []
    return []


def mapping(value: Any) -> dict[Any, Any]:
    """Return `value` if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def under(place: Place, faults: Iterable[Fault]) -> list[Fault]:
    return [((*place, *inner), message) for inner, message in faults]

"""Turn a failed validation into a sentence: the place, the value found, what was expected."""

import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from dac.io.suggestions import hint

Place = tuple[Any, ...]
Fault = tuple[Place, str]
KEY = "[key]"  # the end of pydantic's path when the key itself is wrong, not its value


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
    return [(place, message) for place, message in found if place[0] in differences]


def _worded(model: type[BaseModel], error: Any) -> Fault:
    place, found, kind, message = error["loc"], error["input"], error["type"], error["msg"]
    if place and place[-1] == KEY:
        place = place[:-1]
        if kind == "string_pattern_mismatch":
            return (
                place,
                f"the name {found!r} is not allowed; names must match {error['ctx']['pattern']}",
            )
        if kind != "literal_error":
            return place, f"the name {found!r} is not a string; put it in quotes"
        kind = "extra_forbidden"
    if kind == "extra_forbidden":
        return place, f"unknown key{hint(place[-1], _keys(_type_at(model, place[:-1])))}"
    if kind == "missing":
        return place, "missing; add it (the shipped params.yaml has every key)"
    if kind in ("model_type", "dict_type") and found is None:
        return place, "expected a mapping, found nothing; indent what belongs to it below it"
    if kind in ("model_type", "dict_type"):
        return place, f"expected a mapping, found {_short(found)}"
    if kind == "literal_error":
        valid = get_args(_type_at(model, place))
        return place, f"{found!r} is not one of {error['ctx']['expected']}{hint(found, valid)}"
    if isinstance(found, str) and kind in ("float_type", "int_type"):
        return place, f"{found!r} is a string, expected a number (YAML needs 1.0e-3, not 1e-3)"
    return place, f"{message[0].lower()}{message[1:]}, found {_short(found)}"


def _short(value: Any, length: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= length else f"{text[:length]}..."


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

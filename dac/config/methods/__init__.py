"""The section `methods`: settings by the name that follows `method:` in `params.yaml`.

A method is a file in `dac/methods/` with one `Method` class. Its settings may be in the same file;
those of the shipped methods are here, so that the workflow reads them without importing torch.
"""

import hashlib
import os
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from dac.config.base import DataName, Section
from dac.config.messages import short
from dac.config.methods.common import MethodSettings
from dac.config.methods.dac import DacSettings
from dac.config.methods.open_set import (
    IOMatchSettings,
    MtcfSettings,
    OpenMatchSettings,
    OspSettings,
    SafeStudentSettings,
    SsbSettings,
    UAGregSettings,
)
from dac.config.methods.semi_supervised import (
    CoMatchSettings,
    FixMatchSettings,
    LabeledOnlySettings,
    MixMatchSettings,
    SimMatchSettings,
    SoftMatchSettings,
)
from dac.io.errors import UserError
from dac.io.suggestions import hint

SHIPPED: dict[str, type[MethodSettings]] = {
    "labeled-only": LabeledOnlySettings,
    "mixmatch": MixMatchSettings,
    "fixmatch": FixMatchSettings,
    "comatch": CoMatchSettings,
    "simmatch": SimMatchSettings,
    "softmatch": SoftMatchSettings,
    "mtcf": MtcfSettings,
    "openmatch": OpenMatchSettings,
    "safe-student": SafeStudentSettings,
    "osp": OspSettings,
    "ssb": SsbSettings,
    "iomatch": IOMatchSettings,
    "uagreg": UAGregSettings,
    "dac": DacSettings,
}
METHODS_FOLDER = Path(__file__).parents[2] / "methods"


class MethodEntry(Section):
    """One name under `methods:`: a method with its settings, or a `base` with differences."""

    method: str
    """A file in dac/methods/ without its suffix, `-` for `_`; or the path of any other .py file."""
    settings: dict[str, Any] = {}
    by_data: dict[DataName, dict[str, Any]] = {}
    """Settings that differ for a data set."""
    train: dict[str, Any] = {}
    """Training settings that differ for this method."""
    train_by_data: dict[DataName, dict[str, Any]] = {}


def settings_of(method: str) -> type[MethodSettings]:
    """Return the settings class of a method; a UserError if there is no such method."""
    if method in SHIPPED:
        return SHIPPED[method]
    advice = "see docs/add-a-method.md"
    try:
        found = get_type_hints(annotated_class(method_module(method))).get("settings")
    except (AttributeError, NameError, SyntaxError, TypeError) as error:
        message = f"the annotations of {method!r} cannot be read ({error}); {advice}"
        raise UserError(message) from error
    if not isinstance(found, type) or not issubclass(found, MethodSettings):
        raise UserError(
            f"the method class of {method!r} has no annotation `settings: ...` with a subclass "
            f"of dac.config.MethodSettings; {advice}"
        )
    return found


def method_module(method: str) -> ModuleType:
    """Import the file of a method."""
    if method.endswith(".py"):
        return _from_path(Path(method))
    stem = method.replace("-", "_")
    if not stem.isidentifier() or not _is_file(METHODS_FOLDER / f"{stem}.py"):
        valid = ", ".join(map(repr, SHIPPED))
        raise UserError(f"{short(method)} is not one of {valid}{hint(method, SHIPPED)}")
    return import_module(f"dac.methods.{stem}")


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises if a name is too long


def _from_path(path: Path) -> ModuleType:
    if not _is_file(path):
        raise UserError(f"the file {str(path)!r} does not exist; give a path from {Path.cwd()}")
    name = f"dac_method_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise UserError(f"{path} cannot be imported ({type(error).__name__}: {error})") from error
    return module


def annotated_class(module: ModuleType) -> type[Any]:
    """The one class of a file that annotates `settings`: its method."""
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and "settings" in vars(value).get("__annotations__", {})
    ]
    if len(found) != 1:
        raise UserError(
            f"{module.__file__} has {len(found)} classes with an annotation `settings: ...`, "
            "expected one, the method; see docs/add-a-method.md"
        )
    return found[0]


__all__ = [
    "SHIPPED",
    "CoMatchSettings",
    "DacSettings",
    "FixMatchSettings",
    "IOMatchSettings",
    "LabeledOnlySettings",
    "MethodEntry",
    "MethodSettings",
    "MixMatchSettings",
    "MtcfSettings",
    "OpenMatchSettings",
    "OspSettings",
    "SafeStudentSettings",
    "SimMatchSettings",
    "SoftMatchSettings",
    "SsbSettings",
    "UAGregSettings",
    "settings_of",
]

"""Tensors that say they are on `cuda:0`, hold their numbers on the host, and a mode that runs them.

What fails on a GPU fails here (tensors of two devices in one operation); what makes the host wait
and what is launched is noted in a log.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from pretended_log import Log
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
CUDA = torch.device("cuda:0")

COPIES = (aten._to_copy.default, aten.copy_.default)
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
NO_LAUNCH = {
    aten._unsafe_view.default,
    aten.lift_fresh.default,
    *(aten.empty.memory_format, aten.empty_strided.default, aten.empty_like.default),
    *(aten.new_empty.default, aten.new_empty_strided.default),
}
VALUES = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


class OnDevice(torch.Tensor):
    """A tensor of the pretended device."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> "OnDevice":
        made: OnDevice = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=CUDA,
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} outside `with pretended_cuda()`")

    @property
    def data(self) -> Tensor:
        return torch.Tensor.data.__get__(self)

    @data.setter
    def data(self, other: "OnDevice") -> None:
        torch.Tensor.data.__set__(self, other)
        self.held = other.held

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Saved as a tensor of the host."""
        return self.detach().cpu().__reduce_ex__(protocol)


class Device(TorchDispatchMode):
    """Runs every operation that has to do with the device on the tensors that are held."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log
        self.pinned: dict[int, Tensor] = {}  # alive, so that no other tensor gets their address

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        here: list[OnDevice] = []
        host: list[Tensor] = []
        plain = [_plain(part, here, host) for part in args]
        named = {name: _plain(part, here, host) for name, part in (kwargs or {}).items()}
        target = named.get("device")
        if not here and not _is_cuda(target):
            return func(*args, **named)
        if _is_cuda(target):
            named["device"] = "cpu"
        if func in COPIES:
            ends_here = isinstance(args[0], OnDevice) if target is None else _is_cuda(target)
            self.note_copy(func, args, named, ends_here=ends_here)
        else:
            self.note(func, args, here, host)
            ends_here = target is None or _is_cuda(target)
        found = func(*plain, **named)
        if not ends_here:
            return found
        return _on_device(found, {id(tensor.held): tensor for tensor in here})

    def note(self, func: Any, args: Any, here: Sequence[OnDevice], host: Sequence[Tensor]) -> None:
        """Note an operation, or raise CUDA's error for tensors of two devices."""
        if here and any(tensor.dim() for tensor in host) and func not in INDEXING:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{CUDA} and cpu! (when running {func})"
            )
        if kind := _wait(func, args, has_host=bool(here and host)):
            self.log.wait(kind, str(func))
        if is_launched(func):
            self.log.operations[func] += 1

    def note_copy(self, func: Any, args: Any, named: dict[str, Any], *, ends_here: bool) -> None:
        """Note `to` or `copy_`, which alone may lead from one device to the other."""
        source = args[0] if func is aten._to_copy.default else args[1]
        begins_here = isinstance(source, OnDevice)
        is_free = named.get("non_blocking", False) or args[2:3] == (True,)
        self.log.operations[func] += 1
        if begins_here and not ends_here:
            self.log.wait("to host", str(func))
        elif ends_here and not begins_here and not (is_free and self.is_pinned(source)):
            self.log.wait("to device", str(func))

    def pin(self, tensor: Tensor) -> Tensor:
        copy = tensor.clone()
        self.pinned[copy.untyped_storage().data_ptr()] = copy
        return copy

    def is_pinned(self, tensor: Tensor) -> bool:
        return not tensor.numel() or tensor.untyped_storage().data_ptr() in self.pinned


def _is_cuda(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def _plain(part: Any, here: list[OnDevice], host: list[Tensor]) -> Any:
    """An argument with the tensors that are held; all tensors in it are added to the two lists."""
    if isinstance(part, OnDevice):
        here.append(part)
        return part.held
    if isinstance(part, Tensor):
        host.append(part)
    elif isinstance(part, list | tuple):
        return type(part)([_plain(each, here, host) for each in part])
    return part


def _on_device(found: Any, changed: Mapping[int, OnDevice]) -> Any:
    """What an operation returns; a tensor that it changed in place stays the same tensor."""
    if isinstance(found, list | tuple):
        return type(found)([_on_device(each, changed) for each in found])
    if not isinstance(found, Tensor):
        return found
    if (tensor := changed.get(id(found))) is None:
        return OnDevice(found)
    assert tensor.shape == found.shape, "not pretended: unsqueeze_, resize_ ..."
    return tensor


@cache
def is_launched(func: Any) -> bool:
    return func not in NO_LAUNCH and not func.is_view


@cache
def needs_values(func: Any) -> bool:
    return not VALUES.isdisjoint(func.tags)


def _wait(func: Any, args: Any, *, has_host: bool) -> str | None:
    """What the host waits for, if it does. Most operations pass a number of the host along; some
    copy it to the device first."""
    if func in INDEXING:
        is_mask = any(t.dtype in (torch.bool, torch.uint8) for t in args[1] if t is not None)
        if not is_mask:
            return "to device" if has_host else None
        is_fill = has_host and func is not aten.index.Tensor and args[2].dim() == 0
        return None if is_fill else "value"
    if func is aten.where.self and has_host:
        return "to device"
    return "value" if needs_values(func) else None

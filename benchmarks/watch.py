"""How long the backbone takes inside a training step; the rest of the step is what we add to it."""

from types import TracebackType

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from benchmarks.timing import now


class BackboneWatch:
    """Within the block: seconds of a step inside and outside the backbone, forward and backward.

    Autograd works backward in time, so once the gradient has reached the backbone's last output
    little else is left (of several forwards, the heads of the earlier ones); the backward pass ends
    where the optimizer begins. Both sides are measured in one step, so slow minutes and page faults
    do not come between them.
    """

    def __init__(
        self, backbone: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
    ) -> None:
        self.backbone, self.optimizer, self.device = backbone, optimizer, device
        self.inside = self.outside = 0.0
        self.is_backward = False

    def __enter__(self) -> "BackboneWatch":
        self.handles: list[RemovableHandle] = [
            self.backbone.register_forward_pre_hook(lambda *_: self._enter()),
            self.backbone.register_forward_hook(lambda module, given, out: self._leave(out)),
            self.optimizer.register_step_pre_hook(lambda *_: self._add()),
        ]
        self.began = now(self.device)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.outside = now(self.device) - self.began - self.inside
        for handle in self.handles:
            handle.remove()

    def _enter(self) -> None:
        self.entered = now(self.device)

    def _leave(self, out: Tensor) -> None:
        self._add()
        if out.requires_grad:
            out.register_hook(lambda gradient: self._enter_backward())

    def _enter_backward(self) -> None:
        if not self.is_backward:
            self.is_backward = True
            self._enter()

    def _add(self) -> None:
        self.inside += now(self.device) - self.entered

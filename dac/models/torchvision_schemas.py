"""Make `import torchvision` work with a torch build other than the one it was compiled for.

torchvision's wheel is built against CUDA torch. With the CPU build its library does not load,
the operators `nms` and `qnms` are unknown, and the import fails while it registers their fake
versions. Declaring the two schemas first fixes that; dac calls no compiled torchvision operator.
Import torchvision through this module: `from dac.models.torchvision_schemas import torchvision`.
"""

import torch

if torch.version.cuda is None:
    _library = torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("nms", "qnms"):
        _library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import torchvision

__all__ = ["torchvision"]

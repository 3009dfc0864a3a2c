"""The policies that tests use, and the weak view of one image made by numpy and Pillow."""

import math

import numpy as np
import torch
from pictures import from_pil, to_pil
from PIL import ImageOps
from torch import Tensor

from dac.augment import Policy

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
CIFAR = Policy(size=32, pad=4, flip=True, random_resized_crop=False, **IMAGENET)
LARGE = Policy(size=224, pad=0, flip=True, random_resized_crop=True, **IMAGENET)
DIGITS = Policy(size=16, pad=2, flip=False, random_resized_crop=False, **IMAGENET)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def to_bytes(views: Tensor, policy: Policy) -> Tensor:
    """Undo the normalisation."""
    mean, std = (torch.tensor(v)[:, None, None] for v in (policy.mean, policy.std))
    return ((views * std + mean) * 255).round().to(torch.uint8)


def numpy_crop(image: Tensor, policy: Policy, draws: Tensor) -> Tensor:
    """Reflect-pad with numpy, slice, mirror with Pillow: the weak view of one image."""
    top_draw, left_draw, flip_draw = draws.tolist()
    pad, size = policy.pad, policy.size
    padded = np.pad(image.numpy(), ((0, 0), (pad, pad), (pad, pad)), mode="reflect")
    top = math.floor(top_draw * (padded.shape[1] - size + 1))
    left = math.floor(left_draw * (padded.shape[2] - size + 1))
    crop = to_pil(torch.from_numpy(padded[:, top : top + size, left : left + size]))
    return from_pil([ImageOps.mirror(crop) if policy.flip and flip_draw < 0.5 else crop])[0]

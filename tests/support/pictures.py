"""Real pictures for tests, from files that ship inside scikit-learn and scikit-image."""

import functools

import numpy as np
import torch
from PIL import Image
from skimage import data
from sklearn.datasets import load_sample_image
from torch import Tensor


@functools.cache
def photographs() -> tuple[np.ndarray, ...]:
    """Two landscapes, a portrait, an animal and a still life, each H x W x 3 uint8."""
    landscapes = (load_sample_image("china.jpg"), load_sample_image("flower.jpg"))
    return (*landscapes, data.astronaut(), data.chelsea(), data.coffee())


def tiles(count: int, side: int) -> Tensor:
    """`count` different tiles of the photographs, spread evenly over all of them, as uint8."""
    found = [
        photo[top : top + side, left : left + side]
        for photo in photographs()
        for top in range(0, photo.shape[0] - side + 1, side)
        for left in range(0, photo.shape[1] - side + 1, side)
    ]
    chosen = np.linspace(0, len(found) - 1, count).astype(int)
    assert len(set(chosen)) == count, f"only {len(found)} tiles of {side} px for {count} wanted"
    return torch.from_numpy(np.stack([found[i] for i in chosen])).permute(0, 3, 1, 2).contiguous()


def to_pil(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def from_pil(images: list[Image.Image]) -> Tensor:
    return torch.from_numpy(np.stack([np.asarray(image) for image in images])).permute(0, 3, 1, 2)

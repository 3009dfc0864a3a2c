"""Decoding: sizes as torchvision makes them, and every kind of picture as RGB."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_sets import picture

from dac.data.decode import decode
from dac.models.torchvision_schemas import torchvision

transforms = torchvision.transforms


@pytest.mark.parametrize("size", [(60, 41), (41, 60), (50, 50), (333, 100), (17, 500)])
@pytest.mark.parametrize("side", [32, 64])
def test_sizes_are_torchvisions(tmp_path: Path, size: tuple[int, int], side: int) -> None:
    path = tmp_path / "a.png"
    original = picture(5, (min(size[0], 400), min(size[1], 280)))
    original.save(path)
    exact = transforms.Resize((side, side))(original)
    short = transforms.CenterCrop(side - 4)(transforms.Resize(side)(original))
    assert (decode(path, side).transpose(1, 2, 0) == np.asarray(exact)).all()
    assert (decode(path, side, side - 4).transpose(1, 2, 0) == np.asarray(short)).all()


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "CMYK", "1", "I;16"])
def test_every_kind_of_picture_becomes_rgb(tmp_path: Path, mode: str) -> None:
    grey = picture(3, mode="L")
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    if mode == "I;16":
        Image.fromarray(np.asarray(grey).astype(np.uint16) * 257).save(path)
    elif mode == "P":
        grey.convert("RGB").quantize(256).save(path)
    else:
        grey.convert("RGB").convert(mode).save(path)
    found = decode(path, 30)
    expected = np.asarray(grey.resize((30, 30), Image.Resampling.BILINEAR))
    assert found.shape == (3, 30, 30) and found.dtype == np.uint8
    if mode != "1":  # black and white only: not close to grey
        assert np.abs(found.astype(int) - expected).max() <= 6

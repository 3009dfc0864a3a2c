"""Sections c and d: mutual information and Otsu's threshold against their textbook forms."""

# B batch, K heads (`num_heads`), C known classes

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.lab import Workbench
from benchmarks.table import Row
from benchmarks.timing import MEGABYTE, medians, peak_bytes
from dac.losses import LOG_FLOOR, mutual_information, textbook_mutual_information
from dac.otsu import otsu_threshold

SMALL, LARGE = (448, 10, 50), (128, 10, 810)  # B, K, C of CIFAR-50 and of Semi-iNat
LESS_MEMORY_THAN_TEXTBOOK = 100.0  # times, at SMALL
LARGE_PEAK_MEGABYTES = 300.0


def gram_mutual_information(logits: Tensor) -> Tensor:
    """The same from one Gram matrix of all heads, (K C) x (K C), with autograd."""
    B, num_heads, C = logits.shape
    p = logits.softmax(dim=2)
    flat = p.flatten(1)
    joint = (flat.T @ flat / B).view(num_heads, C, num_heads, C).transpose(1, 2)  # K x K x C x C
    mean = p.mean(dim=0)
    independent = mean[:, None, :, None] * mean[None, :, None, :]
    ratio = joint.clamp_min(LOG_FLOOR).log() - independent.clamp_min(LOG_FLOOR).log()
    first, second = torch.triu_indices(num_heads, num_heads, offset=1, device=joint.device)
    return (joint * ratio).sum(dim=(2, 3))[first, second].mean()


def elements(shape: tuple[int, int, int]) -> int:
    """Size of the largest tensor of the textbook form."""
    B, num_heads, C = shape
    return B * num_heads**2 * C**2


def information(
    bench: Workbench,
    small: tuple[int, int, int] = SMALL,
    large: tuple[int, int, int] = LARGE,
) -> Iterator[Row]:
    """Section c: forward and backward; memory beyond the inputs."""
    B, num_heads, C = small
    ours, textbook = _measured(bench, small, mutual_information, textbook_mutual_information)
    what = f"mutual information, B={B}, {num_heads} heads, {C} classes, textbook / ours"
    sizes = f"{textbook[1] / MEGABYTE:,.0f} MB and {ours[1] / MEGABYTE:,.1f} MB"
    yield Row(
        "c",
        f"{what}: memory",
        textbook[1] / ours[1],
        at_least=LESS_MEMORY_THAN_TEXTBOOK,
        note=sizes,
    )
    times = f"{1000 * textbook[0]:,.0f} ms and {1000 * ours[0]:,.1f} ms"
    yield Row("c", f"{what}: time", textbook[0] / ours[0], note=times)

    B, num_heads, C = large
    growth = elements(large) / elements(small)
    ours, gram = _measured(bench, large, mutual_information, gram_mutual_information)
    what = f"mutual information, B={B}, {num_heads} heads, {C} classes"
    yield Row(
        "c",
        f"{what}: peak",
        ours[1] / MEGABYTE,
        "MB",
        at_most=LARGE_PEAK_MEGABYTES,
        note=f"textbook: {growth * textbook[1] / 1e9:,.0f} GB, computed",
    )
    sizes = f"{gram[1] / MEGABYTE:,.0f} MB"
    yield Row(
        "c", f"{what}, Gram matrix and autograd / ours: memory", gram[1] / ours[1], note=sizes
    )
    times = f"{1000 * gram[0]:,.0f} ms and {1000 * ours[0]:,.0f} ms"
    yield Row("c", f"{what}, Gram matrix and autograd / ours: time", gram[0] / ours[0], note=times)


def otsu(bench: Workbench) -> Iterator[Row]:
    """Section d. skimage gets its scores on the host, as in the release."""
    what = f"Otsu's threshold of {bench.pool:,} scores, skimage / ours: time"
    try:
        from skimage.filters import threshold_otsu
    except ImportError:
        yield Row("d", what, None, note="scikit-image is not installed")
        return
    scores = torch.rand(bench.pool, generator=torch.Generator().manual_seed(0)).to(bench.device)
    works = {
        "ours": lambda: otsu_threshold(scores),
        "skimage": lambda: threshold_otsu(scores.cpu().numpy()),
    }
    taken = medians(works, bench.repetitions, bench.device)
    times = f"{1000 * taken['skimage']:.1f} ms and {1000 * taken['ours']:.1f} ms"
    yield Row("d", what, taken["skimage"] / taken["ours"], note=times)


def _measured(
    bench: Workbench, shape: tuple[int, int, int], *losses: Callable[[Tensor], Tensor]
) -> list[tuple[float, int]]:
    """Seconds and peak bytes of forward and backward, for each form of the loss."""
    logits = torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(bench.device)
    logits.requires_grad_()

    def work(loss: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        def forward_and_backward() -> None:
            logits.grad = None
            loss(logits).backward()

        return forward_and_backward

    works = {loss.__name__: work(loss) for loss in losses}
    taken = medians(works, max(1, bench.repetitions // 3), bench.device)
    peaks = {name: peak_bytes(run, bench.device) for name, run in works.items()}
    return [(taken[name], peaks[name]) for name in works]

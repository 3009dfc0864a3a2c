"""Otsu's threshold on the device, without host synchronization (Otsu 1979; paper Sec. III-C).

Equal to scikit-image's `threshold_otsu`: 256 equal bins between min and max, the center of the
first bin that maximizes w1 w2 (m1 - m2)^2. Works in float64, so that values closer together than
256 float32 steps still have distinct bin edges.
"""

import torch
from torch import Tensor

BINS = 256


def otsu_threshold(values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the threshold of the values (those under `mask`); if all are equal, that value.

    Inliers are the values at or above the threshold. An empty mask gives 0.
    """
    dtype = values.dtype
    values = values.detach().flatten().double()
    inside = torch.ones_like(values, dtype=torch.bool) if mask is None else mask.flatten()
    low = torch.where(inside, values, torch.inf).amin()
    high = torch.where(inside, values, -torch.inf).amax()
    step = (high - low) / BINS
    edges = low + torch.arange(BINS + 1, device=values.device) * step
    centres = (edges[:-1] + edges[1:]) / 2
    counts = _histogram(values, inside, edges, low, step)
    # Bins instead of their centers, in whole numbers: the best k is the same, the sums are exact,
    # and a GPU, whose cumsum of floats is not reproducible, may add them in any order.
    weight1, total1 = torch.stack(
        (counts, counts * torch.arange(BINS, device=counts.device))
    ).cumsum(1)
    weight1, weight2 = weight1[:-1].double(), (weight1[-1] - weight1[:-1]).double()
    mean1, mean2 = total1[:-1] / weight1, (total1[-1] - total1[:-1]) / weight2
    between = weight1 * weight2 * (mean1 - mean2).square()
    threshold = centres.take(between.nan_to_num(-1).argmax())  # indexing would synchronize
    threshold = torch.where(high > low, threshold, low)
    return _round_up(torch.where(inside.any(), threshold, 0.0), dtype)


def _round_up(threshold: Tensor, dtype: torch.dtype) -> Tensor:
    """Round up to a value of `dtype`, so that `value >= threshold` stays the same."""
    rounded = threshold.to(dtype)
    above = torch.nextafter(rounded, torch.full_like(rounded, torch.inf))
    return torch.where(rounded.double() < threshold, above, rounded)


def _histogram(values: Tensor, inside: Tensor, edges: Tensor, low: Tensor, step: Tensor) -> Tensor:
    """Counts per bin; a value on an inner edge is in the bin above, the maximum in the last."""
    index = ((values - low) / step).nan_to_num(0).clamp(0, BINS - 1).long()
    # The division may land one bin off; the edges decide, as in numpy.histogram.
    index = (index - (values < edges[index]).long()).clamp(min=0)
    index = (index + (values >= edges[index + 1]).long()).clamp(max=BINS - 1)
    counts = torch.zeros(BINS, dtype=torch.long, device=values.device)
    return counts.scatter_add_(0, index, inside.long())

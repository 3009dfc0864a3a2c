"""Split numbers into two groups by a mixture of two Gaussians (UAGreg's thresholds)."""

import warnings

import torch
from torch import Tensor

from dac.otsu import otsu_threshold


def mixture_means(values: Tensor) -> Tensor:
    """Return the means of both Gaussians, ascending: N -> 2.

    Both start at Otsu's threshold; weights and variances start from k-means, which sets them apart.
    """
    if values.amin() == values.amax():
        return values[:1].double().repeat(2)
    # One second of imports that only UAGreg's runs need.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    start = float(otsu_threshold(values))
    mixture = GaussianMixture(n_components=2, means_init=[[start], [start]], random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # close enough after 100 iterations
        mixture.fit(values.double().cpu().numpy().reshape(-1, 1))
    return torch.from_numpy(mixture.means_.ravel()).sort().values

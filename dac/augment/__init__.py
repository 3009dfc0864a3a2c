"""Weak, strong and evaluation views of batches of images, on their device."""

from dac.augment.policy import Policy
from dac.augment.views import evaluation, strong, weak

__all__ = ["Policy", "evaluation", "strong", "weak"]

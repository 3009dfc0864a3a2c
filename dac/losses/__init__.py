"""The losses, one equation per file. Tensors in, tensors out; no state.

Unlabeled losses are returned per sample, so that DAC's weight (Eq. 4) can wrap any of them.
"""

from dac.losses.distillation import distillation, textbook_distillation
from dac.losses.heads import head_pseudo_label, head_supervised
from dac.losses.mutual_information import mutual_information, textbook_mutual_information
from dac.losses.precision import LOG_FLOOR, UNDERFLOW, full_precision
from dac.losses.pseudo_label import confident_cross_entropy, pseudo_label
from dac.losses.supervised import supervised

__all__ = [
    "LOG_FLOOR",
    "UNDERFLOW",
    "confident_cross_entropy",
    "distillation",
    "full_precision",
    "head_pseudo_label",
    "head_supervised",
    "mutual_information",
    "pseudo_label",
    "supervised",
    "textbook_distillation",
    "textbook_mutual_information",
]

"""Every baseline runs with the numbers that the protocol states, on every data set.

The numbers stand here a second time, so that a slip in params.yaml is seen; headings in quotation
marks are those of docs/protocol/. (DAC's own numbers: test_paper_numbers.py.)
"""

from pathlib import Path
from typing import Any

import pytest

from dac import config

PARAMS = config.load(Path(__file__).parents[2] / "params.yaml")
TASKS = ("cifar-6-60", "cifar-50-500", "imagenet-20-p1", "semi-inat")
# One value for all four tasks or one for each, in this order; ... where no source states any.
Table = dict[str, Any]

TRAIN: Table = {  # "Schedule", "Optimizer"
    "train.epochs": (256, 256, 100, 100),
    "train.steps_per_epoch": 1024,
    "train.batch": 64,
    "train.mu": (7, 7, 2, 2),
    "train.weight_decay": (5e-4, 1e-3, 3e-4, 3e-4),
    "train.lr": 0.03,
    "train.momentum": 0.9,
    "train.nesterov": True,
    "train.cosine": 7 / 16,
    "train.ema_decay": 0.999,
    "train.evaluate_every": 1024,
    "train.evaluation_batch": (256, 256, 128, 128),
    "train.precision": "fp32",
    "train.initial": "random",
    "train.backbone": ("wrn-28-2", "wrn-28-2", "resnet18", "resnet18"),  # "ResNet at 224 px"
    "train.pool_includes_labeled": False,  # "Labeled images in the pool"
}
RELEASED: Table = {  # "Standard SSL baselines"
    "train.backbone": ("wrn-28-2", "wrn-28-2", "resnet18-released", "resnet18-released"),
    "train.pool_includes_labeled": True,
}
ONE_VIEW: Table = {"labeled_views": 1, "feature_layernorm": False}
TWO_VIEWS = ONE_VIEW | {"labeled_views": 2}
CLOSED = ONE_VIEW | {"reject_below": 0.95}

MIXMATCH = CLOSED | {  # "MixMatch"
    "lambda_u": (75, 150, 75, 75),
    "temperature": 0.5,
    "alpha": 0.75,
    "rampup": 0.4,
    "interleaved": True,
}
COMATCH = CLOSED | {  # "CoMatch"
    "lambda_u": 1,
    "lambda_c": 1,
    "tau": (0.95, 0.95, 0.95, 0.6),
    "graph_tau": (0.8, 0.8, 0.8, 0.2),
    "temperature": (0.2, 0.2, 0.2, 0.1),
    "smoothing": 0.9,
    "smoothing_start": "queue",
    "queue_batches": 5,
    "alignment_batches": (32, 32, 128, 128),
    "proj_dim": (64, 64, 128, 128),
    "num_projectors": 1,
}
SIMMATCH = CLOSED | {  # "SimMatch"
    "lambda_u": 1,
    "lambda_in": 1,
    "tau": (0.95, 0.95, 0.95, 0.6),
    "temperature": 0.1,
    "smoothing": 0.9,
    "alignment_batches": (32, 32, 256, 256),
    "proj_dim": 128,
    "num_projectors": 1,
    "bank": ("momentum", "momentum", "averaged", "averaged"),
    "bank_momentum": 0.7,
    "bank_updates_statistics": False,
}
OSP = ONE_VIEW | {  # "OSP"
    "pruning_epoch": (50, 50, 20, 20),
    "filter_every": (20, 20, 8, 8),
    "rampup_epochs": (40, 40, 16, 16),
    "gamma": 0.6,
    "match_dim": 128,
    "bank_size": (5000, 5000, 5000, ...),
    "bank_confidence": (0.5, 0.2, 0.2, 0.2),
    "fills_bank": True,
    "out_share": 0.2,
    "out_below": 0.2,
    "kl_tau": 0.8,
    "kl_temperature": 0.4,
}
IOMATCH = ONE_VIEW | {  # "IOMatch"
    "lambda_u": 1,
    "lambda_open": 1,
    "tau": (0.95, 0.95, 0.95, 0.6),
    "open_tau": 0.5,
    "open_start_epoch": 1,
    "alignment_batches": 0,
    "proj_dim": 128,
}
STATED: dict[str, Table] = {
    "mixmatch": MIXMATCH,
    "mixmatch-released": MIXMATCH | RELEASED | {"lambda_u": 1, "alpha": 0.5, "interleaved": False},
    "comatch": COMATCH,
    "comatch-released": COMATCH | RELEASED | {"num_projectors": 3, "smoothing_start": "epoch"},
    "simmatch": SIMMATCH,
    "simmatch-released": SIMMATCH
    | RELEASED
    | {"num_projectors": 3, "bank": "averaged", "bank_updates_statistics": True},
    "softmatch": CLOSED | {"lambda_u": 1, "momentum": 0.999, "num_sigma": 2},
    "mtcf": ONE_VIEW
    | {  # "MTCF"
        "warmup_epochs": 3,
        "history": 5,
        "lambda_u": 1,
        "temperature": (0.5, 0.5, 0.5, ...),
        "alpha": 0.5,
        "rampup": (0.4, 0.4, 0.4, ...),
    },
    "openmatch": TWO_VIEWS
    | {  # "OpenMatch"
        "start_epoch": 10,
        "lambda_em": 0.1,
        "lambda_socr": (0.5, 1, 0.5, 0.5),
        "tau": 0,
        "train.mu": 2,
    },
    "safe-student": ONE_VIEW
    | {  # "Safe-Student"
        "warmup_epochs": 1,
        "seen_from": 0.4,
        "unseen_below": 0.3,
        "lambda_seen": 1,
        "lambda_unseen": 0.05,
        "score_form": "benchmark",
        "score_temperature": 10,
    },
    "osp": OSP,
    "osp-released": OSP | {"fills_bank": False, "train.pool_includes_labeled": ...},
    "ssb": TWO_VIEWS
    | {  # "SSB"; tau on Semi-iNat: SSL 3.7
        "detector_epoch": (219, 219, 85, 85),
        "hidden": (1024, 1024, 4096, 4096),
        "lambda_u": 1,
        "tau": (0.95, 0.95, 0.95, 0.6),
        "lambda_em": 0.1,
        "lambda_socr": (0.5, 1, 0.5, ...),
        "negative_below": 0.01,
    },
    "iomatch": IOMATCH,
    "iomatch-aligned": IOMATCH | {"alignment_batches": (0, 128, 32, ...)},
    "uagreg": TWO_VIEWS
    | {  # "UAGreg"
        "lambda_u": 1,
        "lambda_g": 1,
        "tau": 0,
        "open_temperature": 0.9,
        "temperature": (0.2, 0.2, 0.2, 0.1),
        "graph_tau": (0.8, 0.8, 0.8, 0.2),
        "threshold_momentum": 0.9,
        "threshold_weights": "live",
        "proj_dim": (64, 64, 128, 128),
    },
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("method", STATED)
def test_settings_are_those_the_protocol_states(method: str, task: str) -> None:
    position = TASKS.index(task)
    stated = {
        name: value[position] if isinstance(value, tuple) else value
        for name, value in (TRAIN | STATED[method]).items()
    }
    stated = {name: value for name, value in stated.items() if value is not ...}
    run = PARAMS.run(task, method, seed=1)
    resolved = run.method.model_dump()
    resolved |= {f"train.{name}": value for name, value in run.train.model_dump().items()}
    assert {name: resolved[name] for name in stated} == stated

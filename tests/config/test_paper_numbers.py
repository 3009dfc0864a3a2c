"""`params.yaml` has the numbers of the paper, and those of the release where an entry says so."""

from typing import Any

import pytest
from changed_params import PARAMS

from dac.config import DacSettings, FixMatchSettings

ON_CIFAR10, ON_CIFAR100, ON_IMAGENET, ON_INAT = (
    "cifar-6-30",
    "cifar-50-500",
    "imagenet-20-p1",
    "semi-inat",
)


def dac(data_task: str, method: str = "dac") -> DacSettings:
    chosen = PARAMS.run(data_task, method, 1).method
    assert isinstance(chosen, DacSettings)
    return chosen


@pytest.mark.parametrize(
    ("task", "steps", "mu", "weight_decay", "backbone"),
    [
        (ON_CIFAR10, 262_144, 7, 5e-4, "wrn-28-2"),
        (ON_CIFAR100, 262_144, 7, 1e-3, "wrn-28-2"),
        (ON_IMAGENET, 102_400, 2, 3e-4, "resnet18"),
        (ON_INAT, 102_400, 2, 3e-4, "resnet18"),
    ],
)
def test_schedules_are_the_published_ones(
    task: str, steps: int, mu: int, weight_decay: float, backbone: str
) -> None:
    train = PARAMS.run(task, "dac", 1).train
    assert (train.steps, train.steps_per_epoch, train.batch, train.mu) == (steps, 1024, 64, mu)
    assert (train.lr, train.momentum, train.nesterov) == (0.03, 0.9, True)
    assert (train.weight_decay, train.backbone) == (weight_decay, backbone)
    assert (train.cosine, train.ema_decay, train.evaluate_every) == (7 / 16, 0.999, 1024)


@pytest.mark.parametrize("task", [ON_CIFAR10, ON_CIFAR100, ON_IMAGENET])
def test_dac_is_as_the_paper_writes_it(task: str) -> None:
    chosen = dac(task)
    target = PARAMS.run(task, "dac", 1).objective
    assert isinstance(target, FixMatchSettings)
    assert (target.tau, target.lambda_u, target.hard_label) == (0.95, 1.0, True)
    assert (chosen.head_tau, chosen.num_heads, chosen.proj_dim) == (0.95, 10, 128)
    assert (chosen.lambda_u_heads, chosen.lambda_mi, chosen.lambda_kd) == (1.0, 0.5, 1.5)
    assert (chosen.score_momentum, chosen.kd_temperature) == (0.9, 0.1)
    assert (chosen.rejection_temperature, chosen.score_form) == (1.5, "paper")
    assert (chosen.labeled_views, chosen.feature_layernorm, chosen.bank_batches) == (1, False, 256)
    assert not PARAMS.run(task, "dac", 1).train.pool_includes_labeled


def test_semi_inat_lowers_tau_and_the_number_of_heads() -> None:
    assert (dac(ON_INAT).head_tau, dac(ON_INAT).num_heads) == (0.6, 6)
    released = dac(ON_INAT, "dac-released")
    assert (released.head_tau, released.num_heads) == (0.6, 4)
    for name in ("fixmatch", "comatch", "simmatch"):
        assert PARAMS.run(ON_INAT, name, 1).method.tau == 0.6  # type: ignore[union-attr]
    for name in ("dac", "dac-released", "simmatch+dac"):
        assert PARAMS.run(ON_INAT, name, 1).objective.tau == 0.6  # type: ignore[union-attr]


def test_dac_wraps_the_entry_it_names_with_views_and_features_of_its_own() -> None:
    run = PARAMS.run(ON_CIFAR100, "mixmatch+dac", 1)
    plain = PARAMS.run(ON_CIFAR100, "mixmatch", 1).method
    assert run.objective == plain and run.objective.lambda_u == 150  # type: ignore[union-attr]
    released = PARAMS.run(ON_CIFAR100, "dac-released", 1).objective
    assert (released.labeled_views, released.feature_layernorm) == (2, True)  # type: ignore[union-attr]
    assert run.identity()["objective"]["lambda_u"] == 150
    assert "reject_below" not in run.identity()["objective"]
    assert "objective" not in PARAMS.run(ON_CIFAR100, "mixmatch", 1).identity()


@pytest.mark.parametrize(
    ("task", "lambda_mi", "proj_dim", "backbone"),
    [
        (ON_CIFAR10, 0.05, 128, "wrn-28-2"),
        (ON_CIFAR100, 0.1, 128, "wrn-28-2"),
        (ON_IMAGENET, 0.05, 256, "resnet18-released"),
        (ON_INAT, 0.1, 256, "resnet18-released"),
    ],
)
def test_the_released_dac_has_its_tuned_values(
    task: str, lambda_mi: float, proj_dim: int, backbone: str
) -> None:
    chosen, train = dac(task, "dac-released"), PARAMS.run(task, "dac-released", 1).train
    assert (chosen.lambda_mi, chosen.proj_dim, train.backbone) == (lambda_mi, proj_dim, backbone)
    assert (chosen.labeled_views, chosen.feature_layernorm) == (2, True)
    assert (chosen.score_form, chosen.lambda_kd) == ("released", 1.5)
    assert train.pool_includes_labeled


@pytest.mark.parametrize(
    ("method", "lambda_mi", "lambda_kd", "rejection"),
    [
        ("dac-heads", 0.0, 0.0, False),
        ("dac-heads-mi", 0.5, 0.0, False),
        ("dac-heads-mi-kd", 0.5, 1.5, False),
        ("dac-heads-mi-rejection", 0.5, 0.0, True),
        ("dac", 0.5, 1.5, True),
    ],
)
def test_ablation_rows_are_those_of_table_3(
    method: str, lambda_mi: float, lambda_kd: float, rejection: bool
) -> None:
    chosen = dac(ON_CIFAR100, method)
    found = (chosen.lambda_mi, chosen.lambda_kd, chosen.rejection)
    assert found == (lambda_mi, lambda_kd, rejection)


@pytest.mark.parametrize(
    ("data", "classes", "side", "size", "mean"),
    [
        ("cifar10", 10, 32, 32, (0.485, 0.456, 0.406)),
        ("cifar100", 100, 32, 32, (129.3 / 255, 124.1 / 255, 112.4 / 255)),
        ("imagenet30", 30, 256, 224, (0.485, 0.456, 0.406)),
        ("semi-inat-2021", 810, 256, 224, (0.4732, 0.4828, 0.3779)),
    ],
)
def test_data_sets_have_the_published_sizes_and_means(
    data: Any, classes: int, side: int, size: int, mean: tuple[float, ...]
) -> None:
    found = PARAMS.file.prepare[data]
    assert (found.num_classes, found.side, found.size) == (classes, side, size)
    assert found.mean == pytest.approx(mean, abs=1e-6)


def test_task_names_end_in_the_number_of_labels() -> None:
    for name, task in PARAMS.file.tasks.items():
        if task.data in ("cifar10", "cifar100", "digits") and task.num_known:
            _, known, labels, *_ = name.split("-")
            assert (int(known), int(labels)) == (
                task.num_known,
                task.num_known * (task.labels_per_class or 0),
            )

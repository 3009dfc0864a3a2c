"""L_s, L_u and their forms for many heads, Eqs. (2), (3) and (5): by hand, NumPy, extremes."""

import math

import numpy as np
import pytest
import torch
from tensors import finite_with_gradient, normal

from dac import losses


def test_supervised_loss_by_hand() -> None:
    # softmax(log 3, 0) = (3/4, 1/4): the first image is right, the second is wrong.
    logits = torch.tensor([[math.log(3), 0.0], [math.log(3), 0.0]])
    expected = -(math.log(3 / 4) + math.log(1 / 4)) / 2
    assert losses.supervised(logits, torch.tensor([0, 1])).item() == pytest.approx(expected)


def test_supervised_loss_averages_over_views_that_lie_one_after_the_other() -> None:
    first, second, y = normal(5, 3, seed=1), normal(5, 3, seed=2), torch.tensor([0, 1, 2, 1, 0])
    both = losses.supervised(torch.cat([first, second]), y)
    apart = (losses.supervised(first, y) + losses.supervised(second, y)) / 2
    assert both.item() == pytest.approx(apart.item())


def test_pseudo_label_loss_by_hand() -> None:
    weak = torch.tensor([[math.log(3), 0.0], [0.0, 0.0]])  # confidences 3/4 and 1/2
    strong = torch.tensor([[0.0, math.log(4)], [0.0, math.log(4)]])  # p(class 0) = 1/5
    found = losses.pseudo_label(weak, strong, tau=0.7)
    assert found.tolist() == pytest.approx([math.log(5), 0.0])


def test_soft_pseudo_label_uses_the_weak_views_distribution() -> None:
    weak, strong = torch.tensor([[math.log(3), 0.0]]), torch.tensor([[0.0, math.log(4)]])
    expected = -(3 / 4 * math.log(1 / 5) + 1 / 4 * math.log(4 / 5))
    assert losses.pseudo_label(weak, strong, tau=0.7, hard=False).item() == pytest.approx(expected)


def test_confidence_equal_to_tau_is_enough() -> None:
    weak, strong = torch.zeros(1, 2), torch.zeros(1, 2)
    assert losses.pseudo_label(weak, strong, tau=0.5).item() == pytest.approx(math.log(2))
    assert losses.pseudo_label(weak, strong, tau=0.5 + 1e-6).item() == 0


@pytest.mark.parametrize("hard", [True, False])
def test_pseudo_label_loss_equals_plain_numpy(hard: bool) -> None:
    weak, strong = normal(40, 4, seed=3, scale=2), normal(40, 4, seed=4)
    p = np.exp(weak.numpy()) / np.exp(weak.numpy()).sum(1, keepdims=True)
    log_strong = np.log(np.exp(strong.numpy()) / np.exp(strong.numpy()).sum(1, keepdims=True))
    target = np.eye(4)[p.argmax(1)] if hard else p
    expected = (p.max(1) >= 0.6) * -(target * log_strong).sum(1)
    assert 0 < (expected > 0).sum() < 40  # both sides of the threshold occur
    assert losses.pseudo_label(weak, strong, tau=0.6, hard=hard).numpy() == pytest.approx(expected)


@pytest.mark.parametrize("hard", [True, False])
def test_pseudo_labels_carry_no_gradient(hard: bool) -> None:
    weak, strong = normal(6, 3, scale=9).requires_grad_(), normal(6, 3, seed=1).requires_grad_()
    losses.pseudo_label(weak, strong, tau=0.5, hard=hard).sum().backward()
    assert weak.grad is None
    assert strong.grad is not None and strong.grad.abs().sum() > 0


def test_head_losses_are_the_means_of_each_heads_own_loss() -> None:
    x, y = normal(6, 4, 3, seed=1), torch.tensor([0, 2, 1])  # two views of three images
    weak, strong = normal(7, 4, 3, seed=2, scale=3), normal(7, 4, 3, seed=3)
    supervised = [losses.supervised(x[:, i], y).item() for i in range(4)]
    unlabeled = [
        losses.pseudo_label(weak[:, i], strong[:, i], tau=0.8).mean().item() for i in range(4)
    ]
    assert len(set(unlabeled)) == 4  # every head follows its own labels
    assert losses.head_supervised(x, y).item() == pytest.approx(np.mean(supervised))
    found = losses.head_pseudo_label(weak, strong, tau=0.8).item()
    assert found == pytest.approx(np.mean(unlabeled))


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_saturated_logits_keep_cross_entropies_finite(size: float) -> None:
    logits = size * torch.eye(3)
    y = torch.tensor([1, 1, 2])
    finite_with_gradient(lambda at: losses.supervised(at, y), logits)
    for hard in (True, False):
        finite_with_gradient(
            lambda at, hard=hard: losses.pseudo_label(logits.flip(0), at, tau=0.9, hard=hard),
            logits,
        )

"""The pseudo-label graph and the loss that draws embeddings together along it (CoMatch)."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from dac.methods.parts.graphs import graph_contrast, pseudo_label_graph


def predictions(rows: int, classes: int, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(rows, classes, generator=draw)).softmax(dim=1)


def embeddings(rows: int, dim: int, seed: int) -> Tensor:
    return F.normalize(torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed)))


# --- the graph ----------------------------------------------------------------------------------


def test_graph_of_three_predictions_worked_out_by_hand() -> None:
    p = torch.tensor([[1.0, 0.0], [0.75, 0.25], [0.0, 1.0]])
    # products: (1, 2) 0.75, (1, 3) 0, (2, 3) 0.25; own loops 1 although p_2 p_2 is 0.625
    expected = torch.tensor([[1 / 1.75, 0.75 / 1.75, 0], [0.75 / 1.75, 1 / 1.75, 0], [0, 0, 1]])
    assert torch.allclose(pseudo_label_graph(p, 0.5), expected)
    kept = torch.tensor([[1 / 1.75, 0.75 / 1.75, 0], [0.375, 0.5, 0.125], [0, 0.2, 0.8]])
    assert torch.allclose(pseudo_label_graph(p, 0.2), kept)


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.8, 1.0])
def test_graph_equals_its_definition_in_loops(threshold: float) -> None:
    p = predictions(20, 4)
    found, rows = pseudo_label_graph(p, threshold).numpy(), p.double().numpy()
    for b in range(20):
        raw = [1.0 if j == b else sum(rows[b] * rows[j]) for j in range(20)]
        kept = [w if w >= threshold else 0.0 for w in raw]
        assert found[b] == pytest.approx(np.array(kept) / sum(kept), rel=1e-5)


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.8, 1.0])
def test_rows_of_a_graph_sum_to_one(threshold: float) -> None:
    graph = pseudo_label_graph(predictions(30, 6), threshold)
    assert torch.allclose(graph.sum(dim=1), torch.ones(30))
    assert (graph >= 0).all()


@pytest.mark.parametrize("threshold", [0.3, 0.8, 1.0])
def test_every_sample_keeps_the_edge_to_itself_even_if_it_is_unsure(threshold: float) -> None:
    unsure = torch.full((5, 10), 0.1)  # p_b p_b is 0.1
    assert torch.equal(pseudo_label_graph(unsure, threshold), torch.eye(5))
    graph = pseudo_label_graph(predictions(30, 6), threshold)
    assert torch.equal(graph.diagonal(), graph.amax(dim=1))


@pytest.mark.parametrize("threshold", [0.01, 0.8])
def test_orthogonal_predictions_have_only_the_edges_to_themselves(threshold: float) -> None:
    assert torch.equal(pseudo_label_graph(torch.eye(4), threshold), torch.eye(4))


def test_an_edge_at_the_threshold_stays_and_one_below_it_is_cut() -> None:
    p = torch.tensor([[1.0, 0.0], [0.75, 0.25]])
    assert pseudo_label_graph(p, 0.75)[0, 1] > 0
    assert pseudo_label_graph(p, 0.7500001)[0, 1] == 0


def test_graph_leaves_the_predictions_as_they_were() -> None:
    p = predictions(6, 6)
    before = p.clone()
    pseudo_label_graph(p, 0.5)
    assert torch.equal(p, before)


# --- the loss -----------------------------------------------------------------------------------


def test_contrast_of_two_samples_worked_out_by_hand() -> None:
    # S: rows (3, 1) / 4 and (1, 3) / 4 at a temperature of 1 / log 3
    first = second = torch.eye(2)
    graph = torch.tensor([[0.75, 0.25], [0.0, 1.0]])
    found = graph_contrast(first, second, graph, 1 / math.log(3))
    expected = [0.75 * math.log(4 / 3) + 0.25 * math.log(4), math.log(4 / 3)]
    assert found.tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("temperature", [0.1, 0.2, 1.0])
def test_contrast_equals_its_definition_in_loops(temperature: float) -> None:
    first, second = embeddings(12, 5, seed=1), embeddings(12, 5, seed=2)
    graph = pseudo_label_graph(predictions(12, 3), 0.4)
    found = graph_contrast(first, second, graph, temperature)
    z, other, weights = (t.double().numpy() for t in (first, second, graph))
    for b in range(12):
        raw = [math.exp(sum(z[b] * other[j]) / temperature) for j in range(12)]
        expected = -sum(w * math.log(s / sum(raw)) for w, s in zip(weights[b], raw, strict=True))
        assert found[b].item() == pytest.approx(expected, rel=1e-5)


def test_contrast_over_the_identity_is_plain_cross_entropy_between_views() -> None:
    first, second = embeddings(9, 4, seed=1), embeddings(9, 4, seed=2)
    infonce = F.cross_entropy(first @ second.T / 0.2, torch.arange(9), reduction="none")
    assert torch.allclose(graph_contrast(first, second, torch.eye(9), 0.2), infonce)


def test_contrast_is_lowest_where_similarities_are_the_graph_itself() -> None:
    graph = pseudo_label_graph(predictions(8, 3), 0.1)
    entropy = -(graph * graph.clamp_min(1e-30).log()).sum(dim=1)
    at_graph = graph_contrast(graph.clamp_min(1e-30).log(), torch.eye(8), graph, 1.0)
    assert torch.allclose(at_graph, entropy, atol=1e-5)
    elsewhere = graph_contrast(embeddings(8, 4, seed=1), embeddings(8, 4, seed=2), graph, 0.2)
    assert (elsewhere > entropy).all()


def test_contrast_gives_gradient_to_every_sample_of_both_views() -> None:
    first, second = (embeddings(10, 4, seed=seed).requires_grad_() for seed in (1, 2))
    graph = pseudo_label_graph(predictions(10, 3), 0.4)
    loss = graph_contrast(first, second, graph, 0.2).sum()
    for gradient in torch.autograd.grad(loss, [first, second]):
        assert (gradient.abs().sum(dim=1) > 0).all()


def test_gradient_of_the_contrast_equals_finite_differences() -> None:
    first, second = (embeddings(5, 3, seed=s).double().requires_grad_() for s in (1, 2))
    graph = pseudo_label_graph(predictions(5, 3).double(), 0.3)
    assert torch.autograd.gradcheck(lambda a, b: graph_contrast(a, b, graph, 0.5), (first, second))


def test_bf16_makes_neither_graph_nor_contrast_coarser() -> None:
    p, first, second = predictions(10, 3), embeddings(10, 4, seed=1), embeddings(10, 4, seed=2)
    graph = pseudo_label_graph(p, 0.4)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(pseudo_label_graph(p, 0.4), graph)
        found = graph_contrast(first, second, graph, 0.2)
    assert torch.equal(found, graph_contrast(first, second, graph, 0.2))


def test_groups_cut_edges_between_them_and_rows_still_sum_to_one() -> None:
    p = torch.tensor([[1.0, 0.0]]).repeat(4, 1)
    groups = torch.tensor([True, False, True, False])
    expected = torch.tensor([[0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5]]).repeat(2, 1)
    assert torch.equal(pseudo_label_graph(p, 0.8, groups=groups), expected)
    rows = torch.randn(30, 6, generator=torch.Generator().manual_seed(1)).softmax(dim=1)
    groups = torch.arange(30) % 3 == 0
    graph = pseudo_label_graph(rows, 0.1, groups=groups)
    assert torch.allclose(graph.sum(dim=1), torch.ones(30))
    assert not graph[groups][:, ~groups].any() and not graph[~groups][:, groups].any()
    assert torch.equal(pseudo_label_graph(torch.eye(4), 0.8, groups=groups[:4]), torch.eye(4))

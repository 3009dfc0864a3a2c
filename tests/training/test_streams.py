"""Further streams of the pool, selections of it, and the pass over it before an epoch."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from policies import DIGITS, to_bytes
from torch import Tensor
from toy_runs import BATCH, MU, NUM_KNOWN, STEPS_PER_EPOCH, Toy, toy_run

from dac import augment
from dac.config import Phase, Stream, ViewCounts
from dac.data.images import Images
from dac.data.run_data import RunData
from dac.evaluation.inference import evaluating
from dac.io.seeds import generators
from dac.methods.base import Method, Sizes
from dac.methods.parts.selection import Selection
from dac.models.ema import Ema
from dac.training.batches import Batches, ImageStream, epoch_order
from dac.training.pool_scan import PoolScan

CPU = torch.device("cpu")
NUM_IMAGES, NUM_LABELED = 50, 8
POOL = NUM_IMAGES - NUM_LABELED
MASK = torch.arange(POOL) % 3 == 0


def data() -> RunData:
    """Every picture has one color, its number, which no crop changes; rows are shuffled."""
    pictures = np.full((NUM_IMAGES, 3, 16, 16), 0, dtype=np.uint8)
    pictures += (5 * np.arange(NUM_IMAGES, dtype=np.uint8))[:, None, None, None]
    rows = np.random.default_rng(0).permutation(NUM_IMAGES)
    labeled, pool = rows[:NUM_LABELED], rows[NUM_LABELED:]
    labels = (labeled % NUM_KNOWN, pool % 6, np.arange(4))
    return RunData(
        NUM_KNOWN,
        pictures,
        labeled,
        labels[0],
        pool,
        labels[1],
        pictures[:4],
        labels[2],
        DIGITS,
        "",
    )


def numbers(views: Tensor) -> list[int]:
    """Which pictures these are."""
    return (to_bytes(views, DIGITS)[:, 0, 8, 8] // 5).tolist()


def phase(epoch: int) -> Phase:
    """From the second epoch on a selected stream, and another that has labeled images."""
    if epoch == 0:
        return Phase(shared=ViewCounts(labeled=1, weak=1))
    return Phase(
        shared=ViewCounts(labeled=1, weak=1, strong=1, labeled_strong=2),
        streams={
            "inliers": Stream("unlabeled", weak=1, strong=1),
            "both": Stream("unlabeled", weak=1, with_labeled=True),
            "more": Stream("labeled", weak=1),
        },
    )


class Chooser(Method):
    """Selects the images of one of its streams."""

    def __init__(self) -> None:
        sizes = Sizes(4, NUM_KNOWN, NUM_LABELED, POOL, BATCH, BATCH * MU, xavier_head=True)
        super().__init__(SimpleNamespace(phase=phase), sizes, torch.Generator())
        self.inliers = Selection("inliers", POOL)
        self.inliers.choose(MASK)


def batches(**train: int) -> Batches:
    settings = toy_run("fixmatch").train.model_copy(update=train)
    return Batches(data(), settings, Chooser(), generators(1), CPU)


def test_a_stream_may_change_its_batch_between_phases_and_resume_alike() -> None:
    def changing(epoch: int) -> Phase:
        one = Stream("labeled", weak=1) if epoch == 0 else Stream("unlabeled", weak=1)
        return Phase(shared=ViewCounts(labeled=1), streams={"one": one})

    undisturbed, resumed = batches(), batches()
    for source in (undisturbed, resumed):
        source.method.settings = SimpleNamespace(phase=changing)
    first = undisturbed.at(0).more["one"]
    before, after = (b.at(STEPS_PER_EPOCH).more["one"] for b in (undisturbed, resumed))
    assert len(first.index) == BATCH and len(before.index) == BATCH * MU
    assert torch.equal(before.index, after.index)


# --- selected streams ---------------------------------------------------------------------------


def stream(images: np.ndarray) -> ImageStream:
    read = Images(images, CPU, workers=2)
    return ImageStream(read, data().pool_index, batch=12, steps_per_epoch=STEPS_PER_EPOCH)


def test_selected_stream_draws_the_chosen_alone_and_about_equally_often() -> None:
    flow = stream(data().train_images)
    drawn = torch.cat([flow.at(step, MASK)[0] for step in range(STEPS_PER_EPOCH)])
    counts = torch.bincount(drawn, minlength=POOL)
    assert not counts[~MASK].any()
    assert len(drawn) == 120 and set(counts[MASK].tolist()) == {8, 9}  # of 14 images


def test_order_of_a_selected_stream_depends_on_the_epoch_and_the_mask_only() -> None:
    chosen, orders = MASK.nonzero().squeeze(1), []
    for epoch in (2, 3):
        flow = stream(data().train_images)
        steps = range(epoch * STEPS_PER_EPOCH, (epoch + 1) * STEPS_PER_EPOCH)
        orders.append(torch.cat([flow.at(step, MASK)[0] for step in steps]))
        assert torch.equal(orders[-1], chosen[epoch_order(len(chosen), 120, epoch)])
    assert not torch.equal(*orders)


def test_new_mask_counts_from_the_next_epoch_on() -> None:
    flow = stream(data().train_images)
    flow.at(0, MASK)
    for step in range(STEPS_PER_EPOCH, 2 * STEPS_PER_EPOCH):
        assert not MASK[flow.at(step, ~MASK)[0]].any()


def test_memory_map_gives_the_selected_images_too(tmp_path: Path) -> None:
    resident = data().train_images
    resident.tofile(tmp_path / "images.bin")
    mapped = np.memmap(tmp_path / "images.bin", np.uint8, "r", shape=resident.shape)
    one, other = stream(resident), stream(mapped)
    for step in range(2 * STEPS_PER_EPOCH):
        mask = MASK if step < STEPS_PER_EPOCH else ~MASK
        for left, right in zip(one.at(step, mask), other.at(step, mask), strict=True):
            assert torch.equal(left, right)


# --- batches ------------------------------------------------------------------------------------


def test_positions_below_the_pools_size_are_of_the_pool_and_the_others_labeled() -> None:
    source, run, seen = batches(), data(), set()
    rows = np.concatenate([run.pool_index, run.labeled_index])
    for step in range(STEPS_PER_EPOCH, STEPS_PER_EPOCH + 4):
        batch = source.at(step)
        both, inliers = batch.more["both"], batch.more["inliers"]
        assert numbers(both.weak[0]) == rows[both.index].tolist()
        assert numbers(inliers.weak[0]) == run.pool_index[inliers.index].tolist()
        assert numbers(batch.u_weak[0]) == run.pool_index[batch.u_index].tolist()
        assert numbers(batch.x[0]) == run.labeled_index[batch.x_index].tolist()
        assert MASK[inliers.index].all()
        seen |= set(both.index.tolist())
    assert seen == set(range(NUM_IMAGES))


def test_all_streams_share_one_copy_of_the_images() -> None:
    source = batches()
    source.at(STEPS_PER_EPOCH)
    flows = (source.labeled, *source.pool_streams.values())
    assert {flow.images for flow in flows} == {source.images}
    assert {name: flow.batch for (name, *_), flow in source.pool_streams.items()} == {
        "unlabeled": BATCH * MU, "inliers": BATCH * MU, "both": BATCH * MU, "more": BATCH,
    }  # fmt: skip


def test_strong_views_of_labeled_images_are_drawn_where_asked_for() -> None:
    source = batches()
    assert source.at(0).x_strong == [] and source.at(0).more == {}
    batch = source.at(STEPS_PER_EPOCH)
    assert [view.shape for view in batch.x_strong] == [batch.x[0].shape] * 2
    first, second = batch.x_strong
    assert not torch.equal(first, second) and not torch.equal(first, batch.x[0])


def test_views_of_all_stages_and_streams_are_counted() -> None:
    source = batches(epochs=3)
    U = BATCH * MU
    first = BATCH + U
    later = BATCH * (1 + 2) + U * 2 + U * 2 + U + BATCH
    assert source.num_views() == STEPS_PER_EPOCH * (first + 2 * later)
    drawn = 0
    for step in range(3 * STEPS_PER_EPOCH):
        batch = source.at(step)
        parts = [batch.x, batch.x_strong, batch.u_weak, batch.u_strong]
        parts += [views for each in batch.more.values() for views in (each.weak, each.strong)]
        drawn += sum(len(view) for part in parts for view in part)
    assert source.num_views() == drawn


def test_run_resumed_within_an_epoch_draws_the_same_batches() -> None:
    whole, resumed = batches(), batches()
    stop, end = STEPS_PER_EPOCH + 4, 2 * STEPS_PER_EPOCH
    for step in range(STEPS_PER_EPOCH, stop):
        whole.at(step)
    resumed.method.inliers.choose(torch.ones(POOL, dtype=torch.bool))
    resumed.method.load_state_dict(whole.method.state_dict())  # the mask is in the checkpoint
    for name, generator in whole.streams.items():
        resumed.streams[name].set_state(generator.get_state())
    for step in range(stop, end):
        one, other = whole.at(step), resumed.at(step)
        assert torch.equal(one.u_weak[0], other.u_weak[0])
        for name in one.more:
            assert torch.equal(one.more[name].index, other.more[name].index), name
            assert torch.equal(one.more[name].weak[0], other.more[name].weak[0]), name


# --- the pass over the pool ---------------------------------------------------------------------


def pool_scan(batch: int = 9) -> tuple[PoolScan, Toy]:
    """The scan of a network whose averaged weights differ from the live ones."""
    toy = Toy(toy_run("fixmatch"))
    for step in range(3):
        toy.step(step)
    run = data()
    pictures = np.random.default_rng(1).integers(0, 256, run.train_images.shape, dtype=np.uint8)
    run = replace(run, train_images=pictures)
    images = Images(run.train_images, CPU, workers=2)
    views = toy.streams["unlabeled_views"]
    return PoolScan(toy.network, toy.ema, images, run, views, batch), toy


def plain(scan: PoolScan, *, averaged: bool) -> Tensor:
    """Features of the pool in its order, image by image; averaged weights are copied in."""
    network, rows = scan.network, torch.from_numpy(scan.data.train_images[scan.data.pool_index])
    live = {name: p.detach().clone() for name, p in network.named_parameters()}
    if averaged:
        network.load_state_dict(scan.ema.state_dict(), strict=False)
    views = augment.evaluation(rows, DIGITS)
    with torch.no_grad(), evaluating(network):
        found = torch.cat([network.encode(view[None]) for view in views])
    network.load_state_dict(live, strict=False)
    return found


@pytest.mark.parametrize("averaged", [False, True])
def test_scan_reads_every_pool_image_in_order_by_the_weights_asked_for(averaged: bool) -> None:
    scan, _ = pool_scan()
    found = scan(lambda features: features, averaged=averaged, weak=False)
    assert torch.allclose(found, plain(scan, averaged=averaged), atol=1e-5)
    assert not torch.allclose(found, plain(scan, averaged=not averaged), atol=1e-3)
    index = torch.tensor([30, 2, 2, 17])
    subset = scan(lambda features: features, averaged=averaged, weak=False, index=index)
    assert torch.allclose(subset, found[index], atol=1e-5)


@pytest.mark.parametrize("is_training", [False, True])
def test_scan_leaves_weights_statistics_and_mode_as_they_were(is_training: bool) -> None:
    scan, toy = pool_scan()
    toy.network.train(is_training)
    network = {name: t.clone() for name, t in toy.network.state_dict().items()}
    average = {name: t.clone() for name, t in toy.ema.average.items()}
    modes = []

    def read(features: Tensor) -> Tensor:
        modes.append(toy.network.training)
        return features.sum(dim=1)

    found = scan(read, averaged=True)
    assert found.shape == (POOL,) and not found.requires_grad and modes == [False] * 5
    assert toy.network.training == is_training
    assert all(torch.equal(t, network[name]) for name, t in toy.network.state_dict().items())
    assert all(torch.equal(t, average[name]) for name, t in toy.ema.average.items())


def test_weak_views_of_a_scan_follow_the_saved_generator() -> None:
    scan, _ = pool_scan(batch=POOL)
    state = scan.views.get_state()
    first, second = (scan(lambda features: features) for _ in range(2))
    assert not torch.equal(first, second)
    scan.views.set_state(state)
    assert torch.equal(scan(lambda features: features), first)
    scan.views.set_state(state)
    rows = torch.from_numpy(scan.data.train_images[scan.data.pool_index])
    with torch.no_grad(), evaluating(scan.network):
        expected = scan.network.encode(augment.weak(rows, DIGITS, scan.views))
    assert torch.equal(first, expected)
    state = scan.views.get_state()
    scan(lambda features: features, weak=False)
    assert torch.equal(scan.views.get_state(), state)  # nothing is drawn for the evaluation's view


# --- small parts --------------------------------------------------------------------------------


def test_selection_starts_with_everything_and_an_empty_choice_changes_nothing() -> None:
    selection = Selection("unlabeled", 4)
    assert selection.mask.tolist() == [True] * 4
    chosen = torch.tensor([False, True, False, True])
    selection.choose(chosen)
    for mask, expected in ((torch.zeros(4, dtype=torch.bool), chosen), (~chosen, ~chosen)):
        selection.choose(mask)
        assert torch.equal(selection.mask, expected)
    assert "mask" in selection.state_dict()


def test_following_copies_the_live_weights_and_shares_no_memory() -> None:
    module = torch.nn.Linear(3, 2)
    ema = Ema(module, decay=0.9)
    for _ in range(2):
        torch.nn.init.normal_(module.weight)
        ema.follow()
        assert torch.equal(ema.average["weight"], module.weight)
    before = ema.average["weight"].clone()
    module.weight.data.add_(1)
    assert torch.equal(ema.average["weight"], before)
    ema.update()  # goes on from there
    assert torch.allclose(ema.average["weight"], before + 0.1, atol=1e-6)

"""Named generators: equal seeds give equal streams, purposes do not touch each other."""

import pytest
import torch
from torch import nn

from dac.io.seeds import NAMES, generator, generators, seeded


def draw(stream: torch.Generator) -> list[float]:
    return torch.rand(4, generator=stream).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_equal_seed_and_name_give_equal_streams(name: str) -> None:
    assert draw(generator(3, name)) == draw(generator(3, name))


def test_every_seed_and_name_has_its_own_stream() -> None:
    drawn = [tuple(draw(generator(seed, name))) for seed in range(20) for name in NAMES]
    assert len(set(drawn)) == len(drawn)


def test_streams_are_the_same_on_every_machine() -> None:
    # SHA-256 of "1/weights" begins so; anything else would change every result of the project.
    assert generator(1, "weights").initial_seed() == int("8f56e00f1aff70b8", 16) >> 1


def test_a_run_has_one_generator_per_purpose() -> None:
    streams = generators(7)
    assert tuple(streams) == NAMES
    for name, stream in streams.items():
        assert draw(stream) == draw(generator(7, name))


def test_draws_of_one_purpose_leave_the_others_alone() -> None:
    touched, untouched = generators(1), generators(1)
    draw(touched["method"])
    for name in set(NAMES) - {"method"}:
        assert draw(touched[name]) == draw(untouched[name])


def test_initialisers_follow_the_stream_and_not_the_global_generator() -> None:
    layers = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        with seeded(generator(5, "weights")):
            layers.append(nn.Linear(3, 3).weight)
    assert torch.equal(layers[0], layers[1])


def test_global_generator_is_as_before_after_the_block() -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    with seeded(generator(5, "weights")):
        torch.rand(100)
    assert torch.equal(torch.rand(3), expected)


def test_global_generator_comes_back_when_the_block_raises() -> None:
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), seeded(generator(5, "weights")):
        torch.rand(100)
        _ = 1 / 0
    assert torch.equal(torch.get_rng_state(), before)


def test_consecutive_blocks_differ() -> None:
    stream = generator(5, "weights")
    drawn = []
    for _ in range(2):
        with seeded(stream):
            drawn.append(torch.rand(3))
    assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_every_legal_seed_works(seed: int) -> None:
    assert set(generators(seed)) == set(NAMES)

"""The memory bank of open-set distillation, writes that wait for commit, and the bank by class."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from dac.methods.parts.banks import Bank, ClassBank


def make_bank(size: int = 5, dim: int = 2, classes: int = 3, seed: int = 0) -> Bank:
    return Bank(size, dim, classes, torch.Generator().manual_seed(seed))


def rows(*values: float) -> tuple[torch.Tensor, torch.Tensor]:
    column = torch.tensor(values)[:, None]
    return column.expand(-1, 2).clone(), column.expand(-1, 3).clone()


def test_new_bank_holds_unit_vectors_and_uniform_targets() -> None:
    bank = make_bank(size=50, dim=8, classes=4)
    assert torch.allclose(bank.z.norm(dim=1), torch.ones(50))
    assert torch.equal(bank.q, torch.full((50, 4), 0.25))


def test_oldest_rows_are_replaced_first() -> None:
    bank = make_bank(size=5)
    bank.write(*rows(1, 2, 3))
    assert bank.z[:3, 0].tolist() == [1, 2, 3] and bank.position == 3
    bank.write(*rows(4, 5, 6))  # wraps: 6 takes the place of 1
    assert bank.z[:, 0].tolist() == [6, 2, 3, 4, 5]
    assert bank.q[:, 2].tolist() == [6, 2, 3, 4, 5]
    assert bank.position == 1


@pytest.mark.parametrize(
    ("size", "count", "writes"), [(7, 3, 10), (6, 2, 9), (4, 4, 3), (5, 1, 12)]
)
def test_bank_is_the_tail_of_everything_written(size: int, count: int, writes: int) -> None:
    bank = make_bank(size=size)
    written: list[float] = []
    for turn in range(writes):
        values = [float(turn * count + i) for i in range(count)]
        bank.write(*rows(*values))
        written += values
    assert sorted(bank.z[:, 0].tolist()) == written[-size:]
    assert torch.equal(bank.z[:, 0], bank.q[:, 0])  # embedding and target stay together


def test_bank_of_exactly_one_batch_is_replaced_entirely() -> None:
    bank = make_bank(size=3)
    bank.write(*rows(1, 2, 3))
    bank.write(*rows(4, 5, 6))
    assert bank.z[:, 0].tolist() == [4, 5, 6] and bank.position == 0


def test_bank_keeps_no_graph() -> None:
    bank = make_bank()
    z = F.normalize(torch.randn(2, 2, requires_grad=True))
    bank.write(z, torch.rand(2, 3, requires_grad=True))
    assert not bank.z.requires_grad and not bank.q.requires_grad


def test_state_dict_restores_rows_and_position() -> None:
    bank, other = make_bank(seed=0), make_bank(seed=1)
    bank.write(*rows(1, 2, 3, 4))
    other.load_state_dict(bank.state_dict())
    for each in (bank, other):
        each.write(*rows(8, 9))
    assert torch.equal(bank.z, other.z) and torch.equal(bank.q, other.q)
    assert bank.position == other.position == 1


def test_lower_precision_rows_are_stored_as_float32() -> None:
    bank = make_bank()
    bank.write(torch.ones(1, 2, dtype=torch.bfloat16), torch.ones(1, 3, dtype=torch.bfloat16))
    assert bank.z.dtype == bank.q.dtype == torch.float32


# --- staged writes ------------------------------------------------------------------------------


def test_staged_rows_are_written_by_commit_once_and_not_before() -> None:
    bank = make_bank(size=5)
    before = bank.z.clone()
    bank.commit()  # nothing is staged
    bank.stage(*rows(1, 2))
    assert torch.equal(bank.z, before) and bank.position == 0
    for _ in range(2):  # the second time there is nothing to write
        bank.commit()
        assert bank.z[:, 0].tolist() == [1, 2, *before[2:, 0].tolist()] and bank.position == 2


def test_rows_of_a_step_that_was_not_finished_are_replaced_by_the_next_one() -> None:
    bank = make_bank(size=5)
    bank.stage(*rows(1, 2))
    bank.stage(*rows(3))
    bank.commit()
    assert bank.z[0, 0] == 3 and bank.position == 1


def test_staged_rows_are_no_part_of_the_state() -> None:
    bank = make_bank()
    names = set(bank.state_dict())
    bank.stage(*rows(1, 2))
    assert set(bank.state_dict()) == names == {"z", "q", "position"}


# --- features by class (OSP) --------------------------------------------------------------------


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_bank_holds_the_last_of_each_class_over_many_writes() -> None:
    bank, draw = ClassBank(4, 5, 1), np.random.default_rng(1)
    written: list[list[float]] = [[] for _ in range(4)]
    for number in range(60):
        count = int(draw.choice([0, 1, 3, 9, 40]))  # 40: more than five of a class at once
        classes = draw.choice(4, size=count, p=[0.7, 0.2, 0.1, 0.0])
        values = 1 + number * 100.0 + np.arange(count)
        bank.write(torch.tensor(values)[:, None], torch.tensor(classes))
        for c, value in zip(classes, values, strict=True):
            written[c].append(float(value))
        for c in range(4):
            last = written[c][-5:]
            start = int(bank.position[c]) if len(last) == 5 else 0  # the oldest
            assert bank.counts[c] == len(last)
            assert bank.features[c, :, 0].roll(-start)[: len(last)].tolist() == last


def test_draw_is_uniform_over_the_filled_slots_of_a_class() -> None:
    bank = ClassBank(3, 8, 1)
    bank.write(torch.tensor([[1.0], [2.0], [3.0], [9.0]]), torch.tensor([1, 1, 1, 2]))
    own = torch.full((3000, 1), -1.0)
    found = bank.draw(own, torch.ones(3000, dtype=torch.long), seeded()).squeeze(1)
    shares = [(found == value).float().mean().item() for value in (1, 2, 3)]
    assert sum(shares) == pytest.approx(1) and shares == pytest.approx([1 / 3] * 3, abs=0.04)


@pytest.mark.parametrize(("filled", "fallback"), [([2], 2), ([1, 2], 1), ([0, 2], 0), ([0], 0)])
def test_an_empty_class_draws_from_the_first_that_has_features(
    filled: list[int], fallback: int
) -> None:
    bank = ClassBank(3, 4, 1)
    bank.write(10.0 + torch.tensor(filled)[:, None], torch.tensor(filled))
    found = bank.draw(torch.zeros(3, 1), torch.arange(3), seeded()).squeeze(1)
    assert found.tolist() == [10.0 + (c if c in filled else fallback) for c in range(3)]


def test_an_empty_bank_gives_everybody_its_own_feature() -> None:
    own = torch.randn(6, 4, generator=seeded())
    assert torch.equal(ClassBank(3, 5, 4).draw(own, torch.arange(6) % 3, seeded()), own)


def test_state_dict_restores_every_class_and_where_it_is_written_next() -> None:
    bank, other = ClassBank(3, 4, 1), ClassBank(3, 4, 1)
    bank.write(1.0 + torch.arange(8)[:, None], torch.tensor([0, 2, 2, 2, 2, 2, 2, 0]))  # 2 wraps
    state = bank.state_dict()
    assert state.keys() == {"features", "counts", "position"}
    other.load_state_dict(state)
    for each in (bank, other):
        each.write(torch.tensor([[20.0], [21.0], [22.0]]), torch.tensor([0, 1, 2]))
    assert other.features[..., 0].tolist() == [[1, 8, 20, 0], [21, 0, 0, 0], [6, 7, 22, 5]]
    assert other.counts.tolist() == [3, 1, 4] and other.position.tolist() == [3, 1, 3]
    assert all(torch.equal(a, b) for a, b in zip(bank.buffers(), other.buffers(), strict=True))

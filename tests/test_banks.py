"""The memory bank of open-set distillation; OSP's by class, what is not in test_osp.py."""

import pytest
import torch
from torch.nn import functional as F

from dac.banks import Bank, ClassBank


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


def test_lower_precision_rows_are_stored_as_float32() -> None:
    bank = make_bank()
    bank.write(torch.ones(1, 2, dtype=torch.bfloat16), torch.ones(1, 3, dtype=torch.bfloat16))
    assert bank.z.dtype == bank.q.dtype == torch.float32

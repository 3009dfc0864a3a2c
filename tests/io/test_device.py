"""The device of a run."""

import os

import pytest
import torch

from dac.io.device import choose_device, send, set_precision
from dac.io.errors import UserError


def test_auto_is_a_gpu_where_there_is_one() -> None:
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["no-such-device", "cuda:99", ""])
def test_a_device_that_cannot_be_used_is_one_message(name: str) -> None:
    with pytest.raises(UserError, match=f"device {name!r} cannot be used .*try --device cpu"):
        choose_device(name)


@pytest.mark.parametrize("name", ["meta", "mps", "mkldnn", "vulkan", "xpu", "cpu:1", "CPU"])
def test_a_device_that_cannot_train_is_refused_with_those_that_can(name: str) -> None:
    with pytest.raises(UserError, match=f"device '{name}' .*accepted are auto, cpu, cuda, cuda:0"):
        choose_device(name)


def test_a_chosen_device_repeats_its_bits() -> None:
    choose_device("cpu")
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
    assert not torch.backends.cudnn.benchmark
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_sending_to_the_cpu_is_no_copy() -> None:
    host = torch.arange(3)
    assert send(host, torch.device("cpu")).data_ptr() == host.data_ptr()


@pytest.mark.parametrize(
    ("precision", "kind"), [("fp32", "ieee"), ("tf32", "tf32"), ("bf16", "ieee")]
)
def test_a_precision_holds_for_convolutions_and_matrix_products(precision: str, kind: str) -> None:
    set_precision(precision)
    assert torch.backends.cudnn.conv.fp32_precision == kind  # type: ignore[attr-defined]
    assert torch.backends.cuda.matmul.fp32_precision == kind

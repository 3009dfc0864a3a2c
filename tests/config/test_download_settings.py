"""The limits of downloads in `params.yaml`: within what sockets, clocks and disks can do."""

import pytest
from changed_params import PARAMS, faults, setting

from dac.data.sources import patience_of


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        ("timeout_seconds", 1e10, "less than or equal to 3600"),
        ("timeout_seconds", 0, "greater than 0"),
        ("slowest_kilobytes_per_second", -1.0, "greater than or equal to 0"),
        ("slowest_kilobytes_per_second", 1e300, "less than or equal to 1000000"),
        ("retries", 5000, "less than or equal to 100"),
        ("retry_wait_seconds", 1e10, "less than or equal to 3600"),
        ("longest_hours", 0.0, "greater than 0"),
        ("longest_hours", 1e300, "less than or equal to 1000000"),
        ("largest_gigabytes", 0.0, "greater than 0"),
        ("largest_gigabytes", 1e300, "less than or equal to 1000000"),
        ("sets/cifar100/archives/0/size", 10**100, "less than or equal to 1000000000000"),
    ],
)
def test_a_limit_that_cannot_be_kept_is_a_fault_of_the_file(
    name: str, value: float, bound: str
) -> None:
    (fault,) = faults(setting(f"download/{name}", value))
    assert fault.startswith(f"download.{name.replace('/', '.')}: input should be {bound}")


def test_the_shipped_limits_reach_the_downloads_in_bytes_and_seconds() -> None:
    patience = patience_of(PARAMS.file.download)
    assert patience.timeout == 30.0 and patience.slowest == 1000.0
    assert patience.longest == 24 * 3600.0 and patience.largest == 100 * 10**9

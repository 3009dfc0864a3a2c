from collections.abc import Callable
from pathlib import Path

import pytest
import toy

from dac.config import Params


@pytest.fixture(scope="session")
def undisturbed(root: Path, params: Params) -> Callable[[str], Path]:
    """The folder of an uninterrupted run of a method; tests must not change it."""
    return lambda method: toy.finished(params, method, root)

"""One thread for every test: sums are taken in one order, and parallel workers do not fight."""

import signal

import pytest
import torch
import toy
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("no-clock", deadline=None)  # a busy machine is not a failure
settings.load_profile("no-clock")


# A background job of a shell ignores Ctrl-C, and so would the commands that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# The longest files first, so that no worker ends alone; the second one starts with a file that does
# not wait for the project that test_dvc.py builds.
FIRST = ("test_slurm.py", "test_dvc.py", "test_resume.py", "test_workflow.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path.name, len(FIRST)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Measured times are shown and never asserted: `record_property("figure", ...)`."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "figure":
                terminalreporter.write_line(f"measured: {value}")


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    """A data folder with the digits and their first split."""
    return toy.toy_root(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def params(tmp_path_factory):
    """The project's parameters with a budget of twelve steps."""
    return toy.toy_params(tmp_path_factory.mktemp("params"))

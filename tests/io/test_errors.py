"""Exit codes: what a command raises, for people and for schedulers."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy import called
from toy_runs import PARAMS

from dac import aggregate, download
from dac.io.errors import RunFailed, Stopped, UserError, exit_code_of, reason, remedy
from dac.io.files import explain

AGAIN = "run the same command again"
DENIED = f"error: a.json cannot be used (Permission denied); fix its permissions and {AGAIN}\n"
IN_PLACE = f"give another path or change what is there, and {AGAIN}\n"
NO_FILE = f"error: a file cannot be used (Is a directory); {IN_PLACE}"


def raising(error: BaseException) -> Callable[[], None]:
    def main() -> None:
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UserError("no such file"), 2, "error: no such file\n"),
        (RunFailed("loss is not finite"), 1, "failed: loss is not finite\n"),
        (Stopped("saved at step 5"), 75, "stopped: saved at step 5\n"),
        (KeyboardInterrupt(), 130, "interrupted; run the same command again to continue\n"),
        (PermissionError(13, "Permission denied", "a.json"), 2, DENIED),
        (IsADirectoryError(21, "Is a directory"), 2, NO_FILE),
    ],
)
def test_an_error_is_one_message_and_its_exit_code(
    error: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(raising(error)) == code
    assert capsys.readouterr() == ("", message)


def test_success_is_zero_and_silent(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(lambda: None) == 0
    assert capsys.readouterr() == ("", "")


def test_a_fault_of_the_program_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        exit_code_of(raising(ZeroDivisionError()))


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (aggregate, ("--suite", "demo", "--runs", "n" * 300)),
        (download, ("--data", "cifar100", "--mirror", "n" * 300)),
    ],
)
def test_a_name_that_is_too_long_is_one_message(
    command: Any, options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = "--out" if command is aggregate else "--root"
    assert called(command.main, *options, place, tmp_path, "--params", PARAMS.path) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: nnn") and "cannot be used (File name too long); give" in said


def test_the_errors_that_a_user_can_fix_are_the_same_for_writers_and_commands() -> None:
    for number in errno.errorcode:
        error = OSError(number, os.strerror(number), "a.json")
        if explain(error, Path("a.json")) is not None:
            assert exit_code_of(raising(error)) == 2
        elif not isinstance(error, BrokenPipeError):
            with pytest.raises(OSError):
                exit_code_of(raising(error))


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), f"fix its permissions and {AGAIN}"),
        (OSError(errno.EPERM, "Not permitted"), f"fix its permissions and {AGAIN}"),
        (OSError(errno.EDQUOT, "Quota"), f"free some space (or raise the quota) and {AGAIN}"),
        (OSError(errno.ESTALE, "Stale file handle"), f"check its disk and {AGAIN}"),
        (IsADirectoryError(errno.EISDIR, "Is a directory"), "delete it"),
        (OSError("no picture"), "delete it"),
        (ValueError("no JSON"), "delete it"),
    ],
)
def test_only_what_is_broken_or_no_file_is_to_be_deleted(error: Exception, step: str) -> None:
    assert remedy(error, "delete it") == step


def test_a_stop_is_not_taken_for_a_fault_by_who_catches_faults() -> None:
    def main() -> None:
        try:
            raise Stopped("SIGTERM")
        except Exception:
            pytest.fail("a library would go on")

    assert exit_code_of(main) == 75


def test_a_reason_is_one_line_without_the_path() -> None:
    assert reason(FileNotFoundError(2, "No such file", "a.json")) == "No such file"
    assert reason(ValueError("first\nsecond")) == "first"
    assert reason(EOFError()) == "EOFError"
    assert reason(KeyError("ema")) == "'ema' is missing"


def test_a_reader_that_has_gone_is_no_traceback() -> None:
    code = (
        "import sys\n"
        "from dac.io.errors import exit_code_of\n"
        "def main():\n"
        "    while True:\n"
        "        print('x' * 1000)\n"
        "sys.exit(exit_code_of(main))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 141

"""Exit codes: what a command raises, for people and for schedulers."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from dac.io.errors import RunFailed, Stopped, UserError, exit_code_of, reason

DENIED = "error: a.json cannot be used (Permission denied)"
NO_FILE = "error: a file cannot be used (Is a directory)"
MEND = "fix its permissions or what lies in its place, then run the same command again"


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
        (PermissionError(13, "Permission denied", "a.json"), 2, f"{DENIED}; {MEND}\n"),
        (IsADirectoryError(21, "Is a directory"), 2, f"{NO_FILE}; {MEND}\n"),
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

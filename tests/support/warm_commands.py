"""`python`, `snakemake` and `dvc` that start warm: forked from a process that has imported what
they import, which takes seconds in every process of its own.

`folder()` goes first on PATH. It holds small clients, which hand their arguments, folder,
environment and open files to the server, forward signals, and end as the command ends. `dac` is
imported anew by every command. Where a process itself is tested (kill -9, mounts, a network that
is cut off), real commands must be used.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from functools import cache
from pathlib import Path
from typing import Any

COMMANDS = ("python", "snakemake", "dvc")
PYTHON = sys.executable
IMPORTED = (
    *("torch", "torch._dynamo", "pandas", "PIL.Image", "pydantic", "yaml", "sklearn.datasets"),
    *("matplotlib.pyplot", "matplotlib.backends.backend_pdf", "seaborn"),
    *("snakemake.cli", "snakemake.api", "snakemake.report", "smart_open", "yte"),
    *("snakemake.profiles", "snakemake.storage", "snakemake.report.html_reporter"),
    *("dvc.cli.parser", "dvc.repo", "dvc.repo.index", "dvc.repo.plots", "dvc.scm", "dvc.rwlock"),
    *("dvc.cachemgr", "dvc.data_cloud", "dvc.utils.strictyaml", "scmrepo.git", "networkx"),
)
CLIENT = """#!{python} -IS
import json, os, signal, socket, struct, sys

server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
    signal.signal(number, lambda number, frame: server.sendall(bytes([number])))
command = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
request = json.dumps([command, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [struct.pack("q", len(request))], [0, 1, 2])
server.sendall(request)
(code,) = struct.unpack("i", server.recv(4))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@cache
def folder() -> Path:
    """The clients; the server is started when first asked for and ends with this process."""
    found = Path(tempfile.mkdtemp(prefix="warm-"))
    address = found / "server"
    variables = os.environ | {"OMP_NUM_THREADS": "1"}
    server = subprocess.Popen([PYTHON, __file__, str(address)], env=variables)
    atexit.register(_end, server, found)
    for name in COMMANDS:
        (found / name).write_text(CLIENT.format(python=PYTHON, address=str(address)))
        (found / name).chmod(0o755)
    while not address.exists():
        assert server.poll() is None, "the server of warm commands has ended"
        time.sleep(0.05)
    return found


def _end(server: "subprocess.Popen[bytes]", found: Path) -> None:
    server.terminate()
    server.wait()
    shutil.rmtree(found)


# --- the server ---------------------------------------------------------------------------------


def serve(address: str) -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()  # a collection in a child would write to, and so copy, every page it shares
    parent = os.getppid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{address}.new")
    listener.listen(64)
    listener.settimeout(2)
    Path(f"{address}.new").rename(address)
    while os.getppid() == parent:
        try:
            client, _ = listener.accept()
        except TimeoutError:
            continue
        if os.fork() == 0:
            listener.close()
            try:
                client.setblocking(True)
                keep(client, Path(address).parent)
            finally:
                os._exit(0)
        client.close()


def keep(client: socket.socket, clients: Path) -> None:
    """Start a command for a client and tell it the end; it dies with its client."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    header, files, _, _ = socket.recv_fds(client, 8, 3)
    (size,) = struct.unpack("q", header)
    request = b""
    while len(request) < size:
        request += client.recv(size - len(request))
    command = os.fork()
    if command == 0:
        client.close()
        sys.executable = str(clients / "python")  # what Snakemake puts first on the PATH of jobs
        become(*json.loads(request), files)
    for file in files:
        os.close(file)
    is_over = os.pidfd_open(command)
    while True:
        ready, _, _ = select.select([client, is_over], [], [])
        if is_over in ready:
            _, status = os.waitpid(command, 0)
            client.sendall(struct.pack("i", os.waitstatus_to_exitcode(status)))
            return
        numbers = client.recv(64)
        for number in numbers or [signal.SIGKILL]:
            os.kill(command, number)
        if not numbers:
            return


def become(command: list[str], here: str, environment: dict[str, str], files: list[int]) -> None:
    """Be this command from now on."""
    code: Any = 1
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        os.chdir(here)
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None  # TMPDIR may be another one
        code = run(command, here) or 0
    except SystemExit as leaving:
        code = leaving.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code if isinstance(code, int) else 1)


def run(command: list[str], here: str) -> Any:
    program, *options = command
    sys.argv = command
    if program != "python":
        return importlib.import_module(f"{program}.cli").main(options)
    sys.path[0] = here
    if options[:1] == ["-m"]:
        sys.argv = options[1:]
        return runpy.run_module(options[1], run_name="__main__", alter_sys=True) and 0
    return os.execv(PYTHON, [PYTHON, *options])


if __name__ == "__main__":
    serve(sys.argv[1])

"""The toy project under Git and DVC, a second machine without a network, and a real ssh server.

Nothing of the user's own Git, DVC or ssh settings is read, and nothing is written beside the tests.
"""

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from workflow_project import TOP, WHOLE, Project, executed, read, variables, warm

TRACKED = ("dvc.yaml", ".dvc/config", ".dvc/.gitignore", ".dvcignore", ".gitignore")
OUTPUTS = ("data/receipts", "data/prepared", "data/splits", "pretrained", "runs")
OUTPUTS += ("results/tables", "results/summary", "results/figures", "provenance")
UP_TO_DATE = "Data and pipelines are up to date."
JOBS = {*WHOLE, "pretrain", "outputs"}  # the other rules are names to ask for


class DvcProject(Project):
    @classmethod
    def new(cls, folder: Path) -> "DvcProject":
        """The toy suite with the project's own DVC files, committed; nothing is built yet."""
        super().new(folder)
        project = cls(folder)
        for name in TRACKED:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy2(TOP / name, folder / name)
        project.git("init", "--quiet", "--initial-branch=main")
        project.commit("The toy suite")
        return project

    def copy(self, folder: Path, *, without: tuple[str, ...] = ()) -> "DvcProject":
        super().copy(folder, without=without)
        return DvcProject(folder)

    def clone(self, folder: Path) -> "DvcProject":
        """What another machine has: what Git knows, and nothing else."""
        self.git("clone", "--quiet", "--no-local", str(self.folder), str(folder))
        return DvcProject(folder)

    def clone_without_results(self, folder: Path) -> "DvcProject":
        """A clone of another user: no results, no cache, no memory of Snakemake."""
        clone = self.clone(folder)
        assert not any((folder / name).exists() for name in (*OUTPUTS, ".snakemake"))
        return clone

    def call(self, *command: str, code: int = 0, **environment: str) -> str:
        """What a command says; it must end with `code`."""
        return self._call(command, code, self.environment(environment))

    def _call(self, command: Sequence[str], code: int, environment: dict[str, str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        logs = self.logs() if "Error in rule" in done.stdout else ""
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}{logs}"
        return done.stdout

    def environment(self, more: dict[str, str]) -> dict[str, str]:
        own = self.folder.parent / "settings"
        return (
            variables({})
            | {f"DVC_{name}_DIR": str(own / name) for name in ("SITE_CACHE", "GLOBAL_CONFIG")}
            | {"DVC_SYSTEM_CONFIG_DIR": str(own), "GIT_CONFIG_GLOBAL": os.devnull}
            | {f"GIT_{who}_NAME": "Toy" for who in ("AUTHOR", "COMMITTER")}
            | {f"GIT_{who}_EMAIL": "toy@example.org" for who in ("AUTHOR", "COMMITTER")}
            | more
        )

    def git(self, *options: str) -> str:
        return self.call("git", *options)

    def commit(self, message: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)

    def dvc(self, *options: str, code: int = 0, **environment: str) -> str:
        """`dvc`, and all that it starts, as commands that start warm."""
        return self._call(("dvc", *options), code, warm(self.environment(environment)))

    def dvc_offline(self, *options: str, code: int = 0, **environment: str) -> str:
        return self.call(*without_network(), *dvc_command(*options), code=code, **environment)

    def repro(self, *options: str) -> dict[str, int]:
        """`dvc repro`, and the jobs that Snakemake executed."""
        return jobs(self.dvc("repro", *options))

    def recorded(self, stage: str) -> dict[str, str]:
        """Outputs of a stage as dvc.lock has them."""
        outs = read(self.folder / "dvc.lock")["stages"][stage]["outs"]
        return {out["path"]: out["md5"] for out in outs}

    def contents(self) -> dict[str, str]:
        """Every file that DVC tracks, by its checksum."""
        found = [path for name in OUTPUTS for path in (self.folder / name).rglob("*")]
        kept = [path for path in found if path.is_file() and not is_ignored(path)]
        return {path.relative_to(self.folder).as_posix(): md5(path) for path in sorted(kept)}

    def object_of(self, name: str, store: str = ".dvc/cache") -> Path:
        """Where the cache or a remote keeps the content that the file has now."""
        found = md5(self.folder / name)
        return self.folder / store / "files/md5" / found[:2] / found[2:]


def dvc_command(*options: str) -> list[str]:
    return [sys.executable, "-m", "dvc", *options]


def jobs(said: str) -> dict[str, int]:
    return {name: count for name, count in executed(said).items() if name in JOBS}


def is_ignored(path: Path) -> bool:
    """What .dvcignore keeps out."""
    return "work" in path.parts or path.name == "lock"


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def damage(path: Path, mode: int) -> None:
    """One more byte under the same name."""
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content + b"!")
    path.chmod(mode)


@cache
def without_network() -> tuple[str, ...]:
    """What cuts a command off from every network, where this machine has it."""
    for prefix in (("unshare", "-n"), ("unshare", "-rn")):
        with suppress(OSError):
            if subprocess.run([*prefix, "true"], capture_output=True).returncode == 0:
                return prefix
    return ()


# --- a real ssh server on this machine ----------------------------------------------------------


class SshServer:
    """Reached as `lab`, by the keys and the ~/.ssh/config in `home`."""

    def __init__(self, folder: Path) -> None:
        self.home, self.folder = folder / "home", folder
        self.port = free_port()
        (self.home / ".ssh").mkdir(parents=True)
        for name in ("host", "user"):
            file = str(folder / name)
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file]
            subprocess.run(command, check=True)
        self._write_settings()

    def _write_settings(self) -> None:
        folder = self.folder
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\n"
            f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nSubsystem sftp internal-sftp\n"
        )
        key = " ".join((folder / "host.pub").read_text().split()[:2])
        (self.home / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{self.port} {key}\n")
        (self.home / ".ssh/config").write_text(
            f"Host lab\n  HostName 127.0.0.1\n  Port {self.port}\n  User {user_name()}\n"
            f"  IdentityFile {folder}/user\n"
        )

    @contextmanager
    def running(self, program: str) -> Iterator[None]:
        with (self.folder / "sshd.log").open("w") as log:
            command = [program, "-D", "-e", "-f", str(self.folder / "sshd_config")]
            server = subprocess.Popen(command, stderr=log, start_new_session=True)
        try:
            self._wait(server)
            yield
        finally:
            server.terminate()
            server.wait(timeout=10)

    def _wait(self, server: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 20
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            said = (self.folder / "sshd.log").read_text()
            assert server.poll() is None and time.monotonic() < deadline, said
            time.sleep(0.05)

    def log(self) -> str:
        return (self.folder / "sshd.log").read_text()


@contextmanager
def folder_of_sshd() -> Iterator[None]:
    """/run/sshd, which sshd of root insists on and only a boot makes."""
    folder = Path("/run/sshd")
    is_mine = os.getuid() == 0 and not folder.exists()
    if is_mine:
        folder.mkdir(mode=0o755)
    try:
        yield
    finally:
        if is_mine:
            folder.rmdir()


def sshd_program() -> str | None:
    return shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def user_name() -> str:
    return subprocess.check_output(["id", "-un"], text=True).strip()

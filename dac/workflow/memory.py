"""Snakemake's memory of finished jobs as one small file that travels with the results.

Snakemake decides by `.snakemake/metadata` (parameters, code, checksums of inputs) whether a file is
up to date. After `dvc pull` or `dvc checkout` that folder knows nothing of what has come, and
everything would look outdated. The archive is written after every run of the workflow, and unpacked
over the folder whenever it is not the one last written or unpacked here.
"""

import gzip
import io
import json
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from dac.io.files import digest, write_bytes, write_text
from dac.io.progress import say


@dataclass(frozen=True)
class Memory:
    folder: Path
    """Snakemake's own: one file per output it has made."""
    archive: Path
    stamp: Path
    """Holds the digest of the archive that the folder agrees with."""
    untracked: frozenset[str] = frozenset()
    """Rules whose outputs are not tracked."""

    def save(self) -> None:
        """Equal folders give equal bytes, so that DVC sees no change where there is none."""
        found = sorted(path for path in self.folder.rglob("*") if path.is_file())
        records = {path: content for path in found if self._travels(content := path.read_bytes())}
        if not records:
            return
        buffer = io.BytesIO()
        with (
            gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for path, content in records.items():
                entry = tarfile.TarInfo(path.relative_to(self.folder).as_posix())
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        write_bytes(self.archive, buffer.getvalue())
        self._agree()

    def restore(self) -> None:
        """Unpack an archive that came from elsewhere; a damaged one is left alone and reported."""
        if not self.archive.is_file() or self._agrees():
            return
        try:
            whole = gzip.decompress(self.archive.read_bytes())  # reads to the end, checks the CRC
            with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
                archive.extractall(self.folder, filter="data")
        except (tarfile.TarError, zlib.error, OSError, EOFError) as error:
            say(
                f"{self.archive} cannot be read ({error}); finished jobs may run again. "
                "Restore it with `dvc checkout`, or accept what is there with `snakemake --touch`"
            )
            return
        self._agree()

    def _travels(self, record: bytes) -> bool:
        try:
            return json.loads(record)["rule"] not in self.untracked
        except (ValueError, KeyError, TypeError):  # another format than today's
            return True

    def _agree(self) -> None:
        write_text(self.stamp, digest(self.archive))

    def _agrees(self) -> bool:
        return self.stamp.is_file() and self.stamp.read_text() == digest(self.archive)

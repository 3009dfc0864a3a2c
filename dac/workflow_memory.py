"""Snakemake's memory of finished jobs as one small file that travels with the results.

Snakemake decides by `.snakemake/metadata` (parameters, code, checksums of inputs) whether a file is
up to date. A fresh clone has none, so after `dvc pull` everything would look outdated. The archive
is written after every run of the workflow and unpacked when the folder is empty.
"""

import gzip
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from dac.files import write_bytes
from dac.logs import say


@dataclass(frozen=True)
class Memory:
    folder: Path
    """Snakemake's own: one file per output it has made."""
    archive: Path

    def save(self) -> None:
        """Equal folders give equal bytes, so that DVC sees no change where there is none."""
        records = sorted(path for path in self.folder.rglob("*") if path.is_file())
        if not records:
            return
        buffer = io.BytesIO()
        with (
            gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for path in records:
                content = path.read_bytes()
                entry = tarfile.TarInfo(path.relative_to(self.folder).as_posix())
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        write_bytes(self.archive, buffer.getvalue())

    def restore(self) -> None:
        """Unpack into an empty folder; a damaged archive is left alone and told about."""
        if not self.archive.is_file() or any(self.folder.glob("*")):
            return
        try:
            with tarfile.open(self.archive) as archive:
                archive.extractall(self.folder, filter="data")
        except (tarfile.TarError, OSError, EOFError) as error:
            say(
                f"{self.archive} cannot be read ({error}); finished jobs may run again. "
                "Restore it with `dvc checkout`, or accept what is there with `snakemake --touch`"
            )

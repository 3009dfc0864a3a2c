"""Downloads of a whole set, against a real HTTP server, a mirror folder and extracted copies."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from full_disk import fill_disk
from http_server import Server, cut, other, serving, slow, status, verbatim
from tiny_sets import (
    ARCHIVE,
    cifar100_files,
    cifar100_set,
    imagenet30_files,
    md5s,
    semi_inat_files,
    tar,
    write_files,
)

from dac import config
from dac.config import DataName, DownloadSet
from dac.data.download import Job, download
from dac.data.fetch import Patience
from dac.data.sources import Sources
from dac.io.errors import exit_code_of
from dac.io.files import locked

FILES = cifar100_files()
CONTENT = tar(FILES)
URL = f"/{ARCHIVE}"
SHIPPED = config.load(Path(__file__).parents[2] / "params.yaml").file.download.sets
Stage = Callable[..., tuple[int, str]]


@pytest.fixture
def server() -> Iterator[Server]:
    with serving({URL: CONTENT}) as running:
        yield running


@pytest.fixture
def stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Stage:
    """Download a set; returns the exit code that the command would have, and its messages."""
    monkeypatch.setenv("no_proxy", "*")
    patience = Patience(timeout=2.0, slowest=0.0, retries=1, wait=0.0, longest=600.0, largest=10**9)

    def run(
        spec: DownloadSet,
        *,
        data: str = "cifar100",
        mirror: Path | None = None,
        extracted: Path | None = None,
        **limits: Any,
    ) -> tuple[int, str]:
        allowed = replace(patience, **limits)
        sources = Sources(tmp_path / "data/downloads" / data, mirror, allowed)
        job = Job(data, spec, tmp_path / "data", sources, extracted)
        return exit_code_of(lambda: download(job)), capsys.readouterr().err

    return run


def raw_files(tmp_path: Path, name: str = "cifar100") -> dict[str, bytes]:
    folder = tmp_path / "data/raw" / name
    found = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    return {path: place.read_bytes() for path, place in found.items() if path != "receipt.json"}


def assert_nothing_finished(tmp_path: Path, name: str = "cifar100") -> None:
    assert raw_files(tmp_path, name) == {}
    assert not (tmp_path / "data/downloads" / name / ARCHIVE).exists()
    assert not list((tmp_path / "data").rglob("receipt.json"))


# --- addresses --------------------------------------------------------------------------------


def test_dead_and_wrong_mirrors_are_passed_over(
    tmp_path: Path, server: Server, stage: Stage
) -> None:
    server.files["/wrong"] = CONTENT[:-1] + b"?"  # right length, wrong bytes
    urls = [server.url("/gone"), server.url("/wrong"), server.url(URL)]
    code, messages = stage(cifar100_set(urls))
    assert code == 0
    assert raw_files(tmp_path) == FILES
    assert "/gone: HTTP 404" in messages
    assert "/wrong: has sha256" in messages
    receipt = json.loads((tmp_path / "data/raw/cifar100/receipt.json").read_text())
    assert receipt["source"] == {ARCHIVE: server.url(URL)}
    assert receipt["digests"]["archives"][ARCHIVE]["sha256"] == hashlib.sha256(CONTENT).hexdigest()
    assert receipt["digests"]["files"] == md5s(FILES)


def test_a_broken_off_download_is_continued_by_the_next_run(
    tmp_path: Path, server: Server, stage: Stage
) -> None:
    spec = cifar100_set([server.url(URL)])
    server.faults[URL] = [cut(1000), cut(2000)]
    code, messages = stage(spec)
    assert code == 2
    assert "connection closed after 2000 of" in messages
    assert_nothing_finished(tmp_path)
    assert (tmp_path / f"data/downloads/cifar100/{ARCHIVE}.partial").stat().st_size == 2000
    assert stage(spec)[0] == 0
    assert server.asked(URL) == [None, "bytes=1000-", "bytes=2000-"]
    assert raw_files(tmp_path) == FILES


def test_a_partial_file_with_a_wrong_beginning_is_fetched_again_from_the_start(
    tmp_path: Path, server: Server, stage: Stage
) -> None:
    partial = tmp_path / f"data/downloads/cifar100/{ARCHIVE}.partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"x" * 1000)
    code, _ = stage(cifar100_set([server.url(URL)]))
    assert code == 0
    assert server.asked(URL) == ["bytes=1000-", None]
    assert raw_files(tmp_path) == FILES


def test_if_every_address_fails_one_message_lists_them_and_the_way_out(
    tmp_path: Path, server: Server, stage: Stage
) -> None:
    server.files["/wrong"] = bytes(len(CONTENT))
    server.faults["/busy"] = [status(503), status(503)]
    urls = [server.url("/gone"), server.url("/busy"), server.url("/wrong")]
    code, messages = stage(cifar100_set(urls))
    final = messages[messages.index("error: ") :]
    assert code == 2
    assert f"{urls[0]}: HTTP 404" in final
    assert f"{urls[1]}: HTTP 503 Service Unavailable (2 attempts)" in final
    assert f"{urls[2]}: has sha256" in final
    assert "--mirror FOLDER" in final and "--extracted FOLDER" in final
    assert "Traceback" not in messages
    assert_nothing_finished(tmp_path)


def test_a_login_page_is_not_kept_even_without_published_checksums(
    tmp_path: Path, server: Server, stage: Stage
) -> None:
    server.faults[URL] = [other(b"<html>log in</html>")]
    spec = cifar100_set([server.url(URL)], sha256=None, size=None)
    code, messages = stage(spec)
    assert code == 2
    assert "is not an archive (19 bytes)" in messages
    assert_nothing_finished(tmp_path)


@pytest.mark.parametrize("length", [20, 100])
def test_an_archive_cut_in_its_first_block_is_not_kept_even_without_published_checksums(
    tmp_path: Path, server: Server, stage: Stage, length: int
) -> None:
    server.faults[URL] = [other(CONTENT[:length])]
    code, messages = stage(cifar100_set([server.url(URL)], sha256=None, size=None))
    assert code == 2
    assert f"is not an archive ({length} bytes)" in messages
    assert messages.count("error: ") == 1 and "--mirror FOLDER" in messages
    assert_nothing_finished(tmp_path)


@pytest.mark.parametrize("url", ["http://[::1", f"http://{'a' * 70}.org/set", "http://a..b/set"])
@pytest.mark.parametrize("how", ["given", "redirected"])
def test_an_address_that_cannot_be_parsed_is_one_message(
    server: Server, stage: Stage, url: str, how: str
) -> None:
    answer = f"HTTP/1.1 301 Moved\r\nLocation: {url}\r\n\r\n"
    server.faults[URL] = [verbatim(answer.encode())]
    code, messages = stage(cifar100_set([url if how == "given" else server.url(URL)]))
    assert code == 2
    assert f"'{url}' is not a valid address" in messages
    assert "--mirror FOLDER" in messages


def test_what_a_download_may_take_is_said_before_it_starts(server: Server, stage: Stage) -> None:
    start = f"getting {ARCHIVE} from {server.url(URL)}"
    hours = "within 0.166667 h (download.longest_hours)"
    server.faults[URL] = [status(404), status(404)]
    known, unknown = cifar100_set([server.url(URL)]), cifar100_set([server.url(URL)], size=None)
    assert f"{start} ({len(CONTENT) / 1e6:.1f} MB, {hours})" in stage(known)[1]
    limit = "at most 1 GB (download.largest_gigabytes)"
    assert f"{start} ({limit}, {hours})" in stage(unknown)[1]


def test_an_endless_download_is_one_message_that_names_the_setting(
    tmp_path: Path, server: Server, stage: Stage
) -> None:
    server.faults[URL] = [verbatim(b"HTTP/1.1 200 OK\r\n\r\n", endless=bytes(10_000))]
    code, messages = stage(cifar100_set([server.url(URL)], size=None), largest=10**6)
    assert code == 2
    assert "more than download.largest_gigabytes (0.001) allows; raise the setting" in messages
    assert_nothing_finished(tmp_path)


def test_a_download_that_took_too_long_is_continued_by_the_next_run(
    tmp_path: Path, server: Server, stage: Stage
) -> None:
    spec = cifar100_set([server.url(URL)])
    server.faults[URL] = [slow(1000)]
    code, messages = stage(spec, timeout=60.0, longest=0.3)
    assert code == 2
    assert "(download.longest_hours); what has arrived is kept" in messages
    assert_nothing_finished(tmp_path)
    have = (tmp_path / f"data/downloads/cifar100/{ARCHIVE}.partial").stat().st_size
    assert stage(spec)[0] == 0
    assert server.asked(URL) == [None, f"bytes={have}-"]
    assert raw_files(tmp_path) == FILES


def test_a_right_archive_with_a_wrong_file_inside_is_refused(
    tmp_path: Path, server: Server, stage: Stage
) -> None:
    server.files[URL] = tar(FILES | {"cifar-100-python/test": b"changed"})
    spec = cifar100_set([server.url(URL)], sha256=None, size=None)
    code, messages = stage(spec)
    assert code == 2
    wrong = hashlib.md5(b"changed").hexdigest()
    expected = md5s(FILES)["cifar-100-python/test"]
    assert f"cifar-100-python/test has md5 {wrong}, expected {expected}" in messages
    assert raw_files(tmp_path) == {}


def test_a_malicious_archive_leaves_nothing_behind(
    tmp_path: Path, server: Server, stage: Stage
) -> None:
    server.files[URL] = tar(FILES | {"../../../escaped": b"!"})
    spec = cifar100_set([server.url(URL)], sha256=None, size=None)
    code, messages = stage(spec)
    assert code == 2
    assert "'../../../escaped' is not safe" in messages
    assert not list(tmp_path.rglob("escaped"))
    assert list((tmp_path / "data/raw").iterdir()) == []


# --- what is there already --------------------------------------------------------------------


def test_a_finished_set_is_left_alone_without_a_request(
    tmp_path: Path, server: Server, stage: Stage
) -> None:
    spec = cifar100_set([server.url(URL)])
    stage(spec)
    server.requests.clear()
    code, messages = stage(spec)
    assert code == 0
    assert "already exists and is intact" in messages
    assert server.requests == []


def test_a_damaged_archive_and_a_damaged_raw_folder_are_replaced(
    tmp_path: Path, server: Server, stage: Stage
) -> None:
    spec = cifar100_set([server.url(URL)])
    stage(spec)
    (tmp_path / "data/raw/cifar100/cifar-100-python/train").write_bytes(b"damaged")
    assert stage(spec)[0] == 0
    assert raw_files(tmp_path) == FILES
    assert len(server.requests) == 1, "the archive was still good"
    (tmp_path / "data/raw/cifar100/cifar-100-python/train").unlink()
    (tmp_path / "data/downloads/cifar100" / ARCHIVE).write_bytes(CONTENT[:-9])
    assert stage(spec)[0] == 0
    assert raw_files(tmp_path) == FILES
    assert len(server.requests) == 2


def test_leftovers_of_a_killed_run_are_cleared(
    tmp_path: Path, server: Server, stage: Stage
) -> None:
    leftover = tmp_path / "data/raw/.cifar100.partial/cifar-100-python/train"
    write_files(leftover.parent, {"train": b"half a fi"})
    assert stage(cifar100_set([server.url(URL)]))[0] == 0
    assert raw_files(tmp_path) == FILES
    assert not leftover.exists()


def test_what_was_there_comes_back_after_a_kill_between_two_renames(
    tmp_path: Path, server: Server, stage: Stage
) -> None:
    lists = {"filelist/train.txt": b"by hand\n"}
    put_aside = write_files(tmp_path / "data/raw/.cifar100.replaced", lists)
    assert stage(cifar100_set([server.url(URL)]))[0] == 0
    assert raw_files(tmp_path) == FILES | lists and not put_aside.exists()
    write_files(put_aside, lists)  # and after one that came later it is cleared away
    assert stage(cifar100_set([server.url(URL)]))[0] == 0
    assert raw_files(tmp_path) == FILES | lists and not put_aside.exists()


def test_files_placed_by_hand_are_adopted_if_right_and_never_deleted(
    tmp_path: Path, stage: Stage
) -> None:
    spec = cifar100_set()
    raw = write_files(tmp_path / "data/raw/cifar100", FILES)
    assert stage(spec)[0] == 0
    assert (raw / "receipt.json").exists()
    (raw / "receipt.json").unlink()
    (raw / "cifar-100-python/train").write_bytes(b"my own work")
    code, messages = stage(spec)
    assert code == 2
    assert "Move it away" in messages
    assert (raw / "cifar-100-python/train").read_bytes() == b"my own work"


def test_a_second_process_is_refused(tmp_path: Path, server: Server, stage: Stage) -> None:
    spec = cifar100_set([server.url(URL)])
    with locked(tmp_path / "data/downloads/cifar100", "test"):
        code, messages = stage(spec)
    assert code == 2
    assert "is in use by process" in messages
    assert server.requests == []


def test_a_full_disk_while_extracting_leaves_nothing_and_the_next_run_succeeds(
    tmp_path: Path, server: Server, stage: Stage
) -> None:
    spec = cifar100_set([server.url(URL)])
    with pytest.MonkeyPatch.context() as patch:
        fill_disk(patch, lambda path: path.name == "test")
        code, messages = stage(spec)
    assert code == 2
    assert "no space left while writing" in messages and "Free some space" in messages
    assert list((tmp_path / "data/raw").iterdir()) == []
    assert stage(spec)[0] == 0
    assert raw_files(tmp_path) == FILES


def test_a_root_that_cannot_be_written_is_one_message(tmp_path: Path, stage: Stage) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    code, messages = stage(cifar100_set())
    assert code == 2
    assert "cannot write" in messages


# --- without a network ------------------------------------------------------------------------


def test_a_mirror_folder_replaces_the_network(tmp_path: Path, server: Server, stage: Stage) -> None:
    mirror = write_files(tmp_path / "mirror", {ARCHIVE: CONTENT, "filelist/a.txt": b"x 0\n"})
    assert stage(cifar100_set([server.url(URL)]), mirror=mirror)[0] == 0
    assert raw_files(tmp_path) == FILES | {"filelist/a.txt": b"x 0\n"}
    assert server.requests == []
    assert (mirror / ARCHIVE).read_bytes() == CONTENT


def test_a_wrong_archive_in_the_mirror_is_said_and_the_address_used(
    tmp_path: Path, server: Server, stage: Stage
) -> None:
    mirror = write_files(tmp_path / "mirror", {ARCHIVE: CONTENT[:-5]})
    spec = cifar100_set([server.url(URL)])
    code, messages = stage(spec, mirror=mirror)
    assert code == 0
    assert f"{mirror}: has {len(CONTENT) - 5} bytes, expected {len(CONTENT)}" in messages
    assert raw_files(tmp_path) == FILES


@pytest.mark.parametrize("below", ["", "cifar-100-python"])
def test_an_extracted_copy_is_taken_after_its_checksums_match(
    tmp_path: Path, stage: Stage, below: str
) -> None:
    copy = write_files(tmp_path / "copy", FILES | {"cifar-100-python/notes": b"not official"})
    code, _ = stage(cifar100_set(), extracted=copy / below)
    assert code == 0
    assert raw_files(tmp_path) == FILES
    assert (copy / "cifar-100-python/notes").exists()


def test_an_extracted_copy_with_wrong_or_missing_files_is_refused(
    tmp_path: Path, stage: Stage
) -> None:
    copy = write_files(tmp_path / "copy", FILES | {"cifar-100-python/train": b"wrong"})
    (copy / "cifar-100-python/meta").unlink()
    code, messages = stage(cifar100_set(), extracted=copy)
    assert code == 2
    assert "cifar-100-python/train has md5" in messages
    assert "cifar-100-python/meta is missing" in messages
    assert_nothing_finished(tmp_path)


# --- sets without checksums -------------------------------------------------------------------


def counted(name: DataName, **counts: int) -> DownloadSet:
    """The shipped set with other numbers of files."""
    return SHIPPED[name].model_copy(update={"counts": counts})


def imagenet30_mirror(folder: Path) -> Path:
    files = imagenet30_files()
    for part in ("one_class_train", "one_class_test"):
        content = {name: data for name, data in files.items() if name.startswith(part)}
        write_files(folder, {f"{part}.tar": tar(content)})
    return folder


def test_imagenet30_without_a_mirror_ends_with_the_manual_steps(stage: Stage) -> None:
    code, messages = stage(SHIPPED["imagenet30"], data="imagenet30")
    assert code == 2
    assert "no program can download it" in messages
    assert "https://drive.google.com/file/d/1B5c39Fc3haOPzlehzmpTLz6xLtGyKEy4" in messages
    assert "--mirror FOLDER" in messages and "--extracted FOLDER" in messages


def test_imagenet30_from_a_mirror_is_counted_and_its_sha256_recorded(
    tmp_path: Path, stage: Stage
) -> None:
    mirror = imagenet30_mirror(tmp_path / "mirror")
    spec = counted("imagenet30", one_class_train=60, one_class_test=30)
    assert stage(spec, mirror=mirror, data="imagenet30")[0] == 0
    assert raw_files(tmp_path, "imagenet30") == imagenet30_files()
    receipt = json.loads((tmp_path / "data/raw/imagenet30/receipt.json").read_text())
    seen = receipt["digests"]["archives"]["one_class_test.tar"]["sha256"]
    assert seen == hashlib.sha256((mirror / "one_class_test.tar").read_bytes()).hexdigest()


def test_imagenet30_with_a_picture_missing_is_refused(tmp_path: Path, stage: Stage) -> None:
    mirror = imagenet30_mirror(tmp_path / "mirror")
    spec = counted("imagenet30", one_class_train=61, one_class_test=30)
    code, messages = stage(spec, mirror=mirror, data="imagenet30")
    assert code == 2
    assert "one_class_train/ holds 60 files, expected 61" in messages
    assert raw_files(tmp_path, "imagenet30") == {}


def test_an_extracted_copy_of_semi_inat_is_copied_with_its_lists(
    tmp_path: Path, stage: Stage
) -> None:
    files = semi_inat_files(doubled=True) | {"filelist/test.txt": b"test/test/hash0.jpg 0\n"}
    copy = write_files(tmp_path / "copy", files)
    spec = counted("semi-inat-2021", l_train=4, u_train=5, test=3)
    assert stage(spec, extracted=copy, data="semi-inat-2021")[0] == 0
    plain = semi_inat_files() | {"filelist/test.txt": b"test/test/hash0.jpg 0\n"}
    assert raw_files(tmp_path, "semi-inat-2021") == plain

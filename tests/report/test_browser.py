"""The report in a real browser, from disk: loaded, linked, silent, offline, readable on a phone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, Page, browser, executable
from fake_results import PARAMS, fake, write

from dac.config import suites

pytestmark = pytest.mark.browser
WIDTHS = {"desktop": 1280, "phone": 390}
FOLLOW = """
(async () => {
  const lost = [];
  for (const link of document.querySelectorAll('a[href^="#"]')) {
    scrollTo(0, 0);
    link.click();
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    const target = document.getElementById(decodeURIComponent(link.hash.slice(1)));
    const box = target && target.getBoundingClientRect();
    if (!box || location.hash !== link.hash || box.top < -1 || box.top >= innerHeight)
      lost.push(link.hash);
  }
  return {lost, followed: document.querySelectorAll('a[href^="#"]').length};
})()
"""
ROWS = """
Object.fromEntries([...document.querySelectorAll('section[id^="table-"]')].map(
  s => [s.id, [...s.querySelectorAll('tbody tr')].filter(r => r.offsetHeight > 0).length]))
"""
IMAGES = "[...document.images].map(i => i.complete ? i.naturalWidth : 0)"
OVERFLOW = """
(() => {
  const {scrollWidth, clientWidth} = document.documentElement;
  const all = [...document.querySelectorAll('main *, header *, nav *')];
  const free = all.filter(e => !e.closest('.scroll, pre'));
  return {
    wider: scrollWidth - clientWidth,
    outside: free.filter(e => e.getBoundingClientRect().right > clientWidth + 1).length,
    boxes: all.filter(e => e.matches('.scroll')).map(e => e.scrollWidth - e.clientWidth),
  };
})()
"""


@pytest.fixture(scope="module")
def driven(tmp_path_factory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory, driven: Browser) -> dict[str, Path]:
    """A finished demo with its graph, and a paper with four runs of five and no graph."""
    found = {}
    for suite, every, options in (("demo", 1, ["--rulegraph", "rules.dot"]), ("paper", 5, [])):
        folder = fake(tmp_path_factory.mktemp(suite), suite, every)
        write(folder, suite, *options)
        found[suite] = folder / "results" / "report.html"
    return found


@pytest.fixture(
    params=[(suite, size) for suite in ("demo", "paper") for size in WIDTHS], ids="-".join
)
def opened(request, driven: Browser, pages: dict[str, Path]) -> tuple[str, str, Page]:
    suite, size = request.param
    return suite, size, driven.open(pages[suite], WIDTHS[size])


def test_the_page_works(opened: tuple[str, str, Page]) -> None:
    suite, size, page = opened
    results = suites.results(PARAMS, suite)
    rows = {f"table-{n}": len(table.methods) for n, table in results.tables.items()}
    assert page.evaluate(ROWS) == rows
    images = page.evaluate(IMAGES)
    assert len(images) == len(results.figures)
    assert all(width > 0 for width in images)

    links = page.evaluate(FOLLOW)
    assert links == {"lost": [], "followed": 6 + len(results.grids())}

    overflow = page.evaluate(OVERFLOW)
    assert overflow["wider"] == 0
    assert overflow["outside"] == 0
    if (suite, size) == ("paper", "phone"):
        assert max(overflow["boxes"]) > 500  # eleven tasks do not fit: they scroll in their box

    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert page.evaluate(OVERFLOW)["wider"] == 0
    assert page.complaints() == []
    assert len(page.requests()) == 1  # the page itself
    assert page.requests()[0].startswith("file:")


def test_the_page_prints(driven: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    page = driven.open(pages["paper"], WIDTHS["desktop"])
    page.print(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")


def test_a_page_that_complains_and_calls_home_is_caught(driven: Browser, tmp_path: Path) -> None:
    """Otherwise the silence above would prove nothing."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><meta name=viewport content='width=device-width, initial-scale=1'>"
        "<title>x</title><a href='#none'>y</a>"
        "<img src='http://127.0.0.1:9/x.png'><div style='width: 3000px'>wide</div>"
        "<script>console.log('said'); undefinedFunction()</script>"
    )
    page = driven.open(bad, WIDTHS["phone"])
    said = " ".join(page.complaints())
    assert "said" in said
    assert "undefinedFunction is not defined" in said
    assert "http://127.0.0.1:9/x.png" in page.requests()
    assert page.evaluate(FOLLOW)["lost"] == ["#none"]
    assert page.evaluate(IMAGES) == [0]
    assert page.evaluate(OVERFLOW)["wider"] > 2000


def test_a_machine_without_a_browser_skips_unless_one_is_demanded(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("DAC_REQUIRE_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception, match="install Debian's chromium"):
        executable()
    monkeypatch.setenv("DAC_REQUIRE_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match="demands it"):
        executable()

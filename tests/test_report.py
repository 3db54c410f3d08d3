"""Reports: whole pages of well-formed parts, that load nothing, for results of every kind."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from mreach import HDBSCAN
from mreach.datasets import load_emg_clips
from mreach.report import report_html, write_report

VOID = ("meta", "link", "br")


class Page(HTMLParser):
    """Reads a page, and stands on every tag being closed in order, SVG's included."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def count(self, tag: str, **having: str) -> int:
        return sum(
            one == tag and all(attributes.get(name) == value for name, value in having.items())
            for one, attributes in self.found
        )


def summary_of(model: HDBSCAN, data: Any, command: str, path: str = "data.npy") -> dict[str, Any]:
    from mreach.cli.summary import fit_summary

    return fit_summary(command, Path(path), data, model, {"read": 0.001, "fit": 2.5})


def page_of(
    data: Any, command: str = "cluster", path: str = "data.npy", **parameters: Any
) -> tuple[Page, str]:
    model = HDBSCAN(**parameters).fit(data)
    text = report_html(model, data, summary_of(model, data, command, path))
    return Page(text), text


def groups(sizes: list[int]) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.vstack([rng.normal(10 * place, 1, (size, 4)) for place, size in enumerate(sizes)])


def test_a_report_of_clips_shows_them() -> None:
    clips = load_emg_clips()
    page, text = page_of(clips, "clips", "clips.npy", min_cluster_size=20)
    assert page.open == []
    assert page.count("h1") == 1
    assert page.count("figure", **{"class": "panel"}) == 2 + 12
    assert "<h2>Mean waveforms</h2>" in text
    assert "5,223 of 5,247 clips (99.5%) are in a cluster, 24 in none." in text
    assert "mreach.HDBSCAN(min_cluster_size=20).fit(data)" in text


@pytest.mark.parametrize(
    ("data", "parameters"),
    [
        (groups([40] * 50), {}),  # more clusters than the table holds
        (groups([40]), {"min_cluster_size": 30}),  # none
        (groups([40]), {"allow_single_cluster": True}),
        (np.repeat([[0.0, 0.0], [1.0, 1.0]], 20, axis=0), {}),  # equal rows: infinite density
        (np.vstack((groups([9, 9]), [[np.nan] * 4, [np.inf] * 4])), {}),
        (np.array([[1.0, 2.0]]), {"min_samples": 1}),
        (np.zeros((30, 1)), {}),
    ],
)
@pytest.mark.parametrize("command", ["cluster", "clips"])
def test_every_result_has_a_page(data: np.ndarray, parameters: dict[str, Any], command: str) -> None:
    page, text = page_of(data, command, **parameters)
    assert page.open == []
    assert page.count("html", lang="en") == 1
    assert page.count("script") == 0
    for svg in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        drawing = ElementTree.fromstring(svg)
        assert drawing.get("aria-label")
        assert drawing.get("role") == "img"
        assert "nan" not in svg
        assert "inf" not in svg.replace("infinity", "")


def test_a_page_loads_nothing_and_names_are_text() -> None:
    page, text = page_of(groups([20, 20]), path="<b>&\"'.npy")
    assert "&lt;b&gt;&amp;" in text
    assert "<b>&" not in text
    for _, attributes in page.found:
        for name in ("src", "href", "action", "data"):
            assert (attributes.get(name) or "data:").startswith("data:")
    assert not re.search(r"url\(|@import|https?:", text)


def test_means_and_spreads_are_those_of_the_rows() -> None:
    from mreach.report import page

    rng = np.random.default_rng(1)
    rows, labels = rng.normal(100, 1, (1000, 5)), rng.integers(-3, 4, 1000)
    rows[labels < -1] = np.nan
    mean, spread = page._means(rows, labels, 3)
    for label in range(3):
        assert np.allclose(mean[label], rows[labels == label].mean(axis=0), rtol=1e-12)
        assert np.allclose(spread[label], rows[labels == label].std(axis=0), rtol=1e-9)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium to open a page in")
def test_a_browser_opens_the_page_without_an_error(tmp_path: Path) -> None:
    data = groups([30, 40])
    model = HDBSCAN().fit(data)
    write_report(tmp_path / "report.html", model, data, summary_of(model, data, "clips"))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    done = subprocess.run(
        [
            "chromium",
            *options,
            f"--user-data-dir={tmp_path / 'profile'}",
            (tmp_path / "report.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert "<h2>Condensed tree</h2>" in done.stdout
    assert "CONSOLE" not in done.stderr

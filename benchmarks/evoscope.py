"""What a page costs: time to make it, its size, time until a browser has painted it, and frames per
second of its canvas.

    python benchmarks/evoscope.py RUN…

``RUN`` is the folder of a run. Without one, two are lived first: 64 organelles for 300 generations,
and 32 for 3,000 (some ten minutes). Times are those of this machine; they are printed, not judged.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from playwright.sync_api import sync_playwright

from symbiont_ecology import Run
from symbiont_ecology.evoscope.page import page_html, page_record, write_page

SHAPES = {"64 organelles": (64, 300), "a long life": (32, 3000)}
FRAMES = """() => new Promise(done => {
  const times = [];
  page.toggle();
  const count = now => {
    times.push(now);
    if (times.length < 180 && page.isPlaying) requestAnimationFrame(count);
    else { page.pause(); done(times); }
  };
  requestAnimationFrame(count);
})"""


def lived(name: str, folder: Path) -> Path:
    """A run of that shape."""
    count, generations = SHAPES[name]
    changes = (
        f"strategy.founders={count}",
        f"strategy.capacity={count}",
        f"strategy.ranks={2 * count}",
        f"host.slots={count}",
        "economy.cap=400000",
        f"run.generations={generations}",
        "run.checkpoint_every=100",
    )
    Run.start("experiments/life", *changes, folder=folder).finish()
    return folder


def measure(folder: Path) -> None:
    """Makes the page and opens it."""
    began = time.perf_counter()
    html = page_html(page_record([folder]))
    seconds = time.perf_counter() - began
    path = Path(tempfile.mkdtemp()) / "page.html"
    write_page(html, path)
    with sync_playwright() as player:
        browser = player.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        visit = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
        opened = visit.new_page()
        opened.goto(path.as_uri())
        painted = opened.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        )
        ready = opened.evaluate("performance.getEntriesByName('ready')[0].startTime")
        times = opened.evaluate(FRAMES)
        bodies = opened.evaluate("page.run.alive(page.frame).length")
        browser.close()
    gaps = sorted(late - early for early, late in pairwise(times))
    print(
        f"{folder.name}: page made in {seconds:.1f} s, {len(html) / 1e6:.1f} MB; first paint after "
        f"{painted / 1000:.2f} s, everything drawn after {ready / 1000:.2f} s; canvas with "
        f"{bodies} bodies: {1000 * len(gaps) / sum(gaps):.0f} frames per second, 95 % of gaps below"
        f" {gaps[int(0.95 * len(gaps))]:.0f} ms"
    )


def main() -> None:
    """Measures the runs that are named, or makes some."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN")
    folders = parser.parse_args().runs
    if not folders:
        place = Path(tempfile.mkdtemp())
        folders = [lived(name, place / name.replace(" ", "-")) for name in SHAPES]
    for folder in folders:
        measure(folder)


if __name__ == "__main__":
    main()

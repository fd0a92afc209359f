r"""The pictures of docs/evoscope.md and README: every view of two runs, and a film of one; and
views of two runs without an economy.

    python scripts/evoscope_pictures.py USERS TRIALS STEPS TRAININGS

``USERS`` is the folder of the ecology of ``symbiont demo``, ``TRIALS`` that of a run with births,
trials and merges, ``STEPS`` that of ``symbiont run es-conciseness``, ``TRAININGS`` that of
``symbiont run loralab``. ``TRIALS`` was made so:

    symbiont run experiments/life "strategy.mechanisms.merging={at: 10000, every: 10}" \
        run.generations=150

It needs Chromium and the extra ``dev``.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

from symbiont_ecology.evoscope.animation import write_film
from symbiont_ecology.evoscope.page import page_html, page_record, write_page

FIGURES = Path("docs/figures/evoscope")
OF_USERS = (
    "canvas",
    "biography",
    "servers",
    "curves",
    "cells",
    "energy",
    "archive",
    "news",
    "replies",
)
OF_TRIALS = ("muller", "tree", "ranks", "trials")
OF_STEPS, OF_TRAININGS = ("rewards",), ("genes",)


def main() -> None:
    """Writes the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("users", "trials", "steps", "trainings"):
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    FIGURES.mkdir(parents=True, exist_ok=True)
    users, trials = page_record([arguments.users]), page_record([arguments.trials])
    write_film(users["runs"][0], FIGURES / "living.gif")
    with sync_playwright() as player:
        browser = player.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for record, views, moment in (
            (users, OF_USERS, "g=100&organelle=o2"),
            (trials, OF_TRIALS, ""),
            (page_record([arguments.steps]), OF_STEPS, ""),
            (page_record([arguments.trainings]), OF_TRAININGS, ""),
        ):
            path = FIGURES / "page.html"
            write_page(page_html(record), path)
            context = browser.new_context(viewport={"width": 1280, "height": 860}, offline=True)
            page = context.new_page()
            page.goto(f"{path.resolve().as_uri()}#{moment}")
            page.wait_for_timeout(500)
            if record is users:
                page.screenshot(path=FIGURES / "page.png")
            page.add_style_tag(content="footer { display: none !important }")
            for view in views:
                page.locator(f"#{view}-view").screenshot(path=FIGURES / f"{view}.png")
            context.close()
            path.unlink()
        browser.close()
    for path in sorted(FIGURES.iterdir()):
        print(f"{path} {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()

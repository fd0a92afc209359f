"""The living canvas as a film: a GIF, or an MP4 with the extra ``film``.

It is drawn from the record of the page: bodies are organelles, sized by energy, and dots are the
users whom they serve. Equal records give equal films.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib as mpl
from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, PillowWriter
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from symbiont_ecology.errors import ConfigError, MissingExtraError, RunError
from symbiont_ecology.evoscope.record import PageRecord
from symbiont_ecology.files import write_whole
from symbiont_ecology.plots.palette import OTHERS_COLOUR, VIEW_COLOURS

MOST_PICTURES, PER_SECOND = 150, 10
"""Pictures of a film, and how many of them make a second."""
SIZE, DPI = (6.0, 5.0), 80
MARGIN = 0.75
INK = "#1d2327"


@dataclass(frozen=True)
class Bubble:
    """A body on the canvas: where, how large, whose, and how much of it is seen."""

    id: str
    x: float
    y: float
    radius: float
    colour: str


class Canvas:
    """Who is where in each frame of a record."""

    def __init__(self, record: PageRecord) -> None:
        self.record = record
        self.ends: list[int] = record["frames"]["ends"]

    def bubbles(self, frame: int) -> list[Bubble]:
        """The living after a frame."""
        generation, bubbles = self.ends[frame], list[Bubble]()
        for number, life in enumerate(self.record["organelles"]):
            if life["born"] <= generation and (life["died"] is None or life["died"] > generation):
                share = max(self.balance(number, frame), 0) / self._most
                colour = VIEW_COLOURS[life["colour"]] if life["colour"] >= 0 else OTHERS_COLOUR
                x, y = life["place"]
                bubbles.append(Bubble(life["id"], x, -y, 0.08 + 0.24 * math.sqrt(share), colour))
        return bubbles

    def dots(self, frame: int) -> Iterator[tuple[float, float]]:
        """The users after a frame, around the bodies that serve them."""
        bodies = {bubble.id: bubble for bubble in self.bubbles(frame)}
        generation, latest = self.ends[frame], dict[str, str]()
        for change in self.record["servings"]:
            if change["generation"] <= generation:
                latest[change["habitat"]] = change["id"]
        served: dict[str, list[str]] = defaultdict(list)
        for habitat in sorted(latest):
            served[latest[habitat]].append(habitat)
        for server, habitats in served.items():
            if (body := bodies.get(server)) is not None:
                reach = min(body.radius + 0.09, 0.46)
                for place in range(len(habitats)):
                    angle = 2 * math.pi * place / len(habitats) + math.pi / 2
                    yield body.x + reach * math.cos(angle), body.y + reach * math.sin(angle)

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, right, bottom and top of everyone's places."""
        xs = [life["place"][0] for life in self.record["organelles"]] or [0.0]
        ys = [-life["place"][1] for life in self.record["organelles"]] or [0.0]
        return min(xs) - MARGIN, max(xs) + MARGIN, min(ys) - MARGIN, max(ys) + MARGIN

    @cached_property
    def _books(self) -> dict[int, tuple[list[int], list[int]]]:
        books: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        table = self.record["books"]
        for key, frame, balance in zip(table["who"], table["frame"], table["balance"], strict=True):
            books[key][0].append(frame)
            books[key][1].append(balance)
        return books

    @cached_property
    def _most(self) -> int:
        return max(self.record["books"]["balance"], default=1) or 1

    def balance(self, who: int, frame: int) -> int:
        """Of an organelle, by its number, after a frame; mATP."""
        frames, balances = self._books[who]
        place = bisect_right(frames, frame) - 1
        return balances[place] if place >= 0 else 0


def write_film(record: PageRecord, path: Path) -> None:
    """Draws the canvas through time.

    Raises:
        ConfigError: the name does not end with .gif or .mp4.
        MissingExtraError: an MP4 without the extra ``film``.
        RunError: no generation was lived, or the file cannot be written.
    """
    writer, canvas = _writer(path), Canvas(record)
    if not canvas.ends:
        raise RunError(f"{record['name']}: no generation is over yet, so there is nothing to film")
    figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
    axes = figure.subplots()
    step = max(1, -(-len(canvas.ends) // MOST_PICTURES))
    frames = [*range(0, len(canvas.ends) - 1, step), *[len(canvas.ends) - 1] * PER_SECOND]
    try:
        with TemporaryDirectory() as place:
            film = Path(place) / path.name
            with writer.saving(figure, str(film), DPI):
                for frame in frames:
                    _draw(canvas, frame, axes)
                    writer.grab_frame()
            write_whole(path, film.read_bytes())
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error


def _writer(path: Path) -> AbstractMovieWriter:
    if path.suffix == ".gif":
        return PillowWriter(fps=PER_SECOND)
    if path.suffix != ".mp4":
        raise ConfigError(f"--animate {path}: expected a name that ends with .gif or .mp4")
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise MissingExtraError("an .mp4", "imageio-ffmpeg", "film") from error
    mpl.rcParams["animation.ffmpeg_path"] = imageio_ffmpeg.get_ffmpeg_exe()
    return FFMpegWriter(fps=PER_SECOND, extra_args=["-pix_fmt", "yuv420p", "-bitexact"])


def _draw(canvas: Canvas, frame: int, axes: Axes) -> None:
    from matplotlib.patches import Circle

    axes.clear()
    axes.set_axis_off()
    left, right, bottom, top = canvas.box
    axes.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    bubbles = canvas.bubbles(frame)
    for bubble in bubbles:
        axes.add_patch(
            Circle((bubble.x, bubble.y), bubble.radius, fc=bubble.colour, ec=INK, lw=0.6)
        )
        is_inside = bubble.radius > 0.14
        axes.text(
            bubble.x,
            bubble.y if is_inside else bubble.y + bubble.radius + 0.06,
            bubble.id,
            ha="center",
            va="center" if is_inside else "bottom",
            fontsize=7,
            color="white" if is_inside else INK,
            weight="bold",
        )
    for x, y in canvas.dots(frame):
        axes.add_patch(Circle((x, y), 0.035, fc="white", ec=INK, lw=1))
    curves = canvas.record["curves"]
    near = slice(max(frame - 3, 0), frame + 4)
    asked, right_answers = sum(curves["asked"][near]), sum(curves["right"][near])
    share = f"{right_answers / asked:.0%} right" if asked else "nobody was asked"
    axes.set_title(
        f"generation {canvas.ends[frame]}: {len(bubbles)} alive, {share}", fontsize=10, loc="left"
    )

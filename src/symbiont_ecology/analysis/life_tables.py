"""The tables of a run's screen: who lives, who serves whom, which cells are solved, what was just
replied.

Texts of models, data and plugins go into these tables as plain text: nothing in them is markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from symbiont_ecology.analysis.trends import sparkline
from symbiont_ecology.ecology import EcologyState, Habitat, SuccessPosterior
from symbiont_ecology.transcripts import Transcript, plain
from symbiont_ecology.types import cell_family

LOW, HIGH = 0.33, 0.67
"""Shares from which the colour is yellow, and green; red is below."""
WIDEST_NAME = 16
"""Characters of a habitat or family that a line shows."""
BESIDE_TEXTS = 7
"""Columns of a line that are no name, prompt or reply: the verdict and gaps."""


def legend(has_habitats: bool) -> Text:
    """What blocks, colours and columns mean."""
    shares = [
        (f"{sparkline([share], high=1.0)} {words}" if has_habitats else words, _colour(share))
        for share, words in ((0.2, "<33%"), (0.5, "<67%"), (1.0, "more"))
    ]
    colours = [part for share in shares for part in (" ", share)]
    start = "a habitat accepts" if has_habitats else "right:"
    end = " · age: generations · ATP: energy" + ("" if has_habitats else " · step: learning rate")
    return Text.assemble((start, "dim"), *colours, (end, "dim"), no_wrap=True, overflow="ellipsis")


def population_table(state: EcologyState, rows: int, cells: int = 2) -> Table:
    """The richest organelles: age (generations), balance (ATP), learning rate, best cells and
    belief in them."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, width in (("id", 4), ("age", 3), ("ATP", 5), ("rate", 6)):
        table.add_column(column, justify="right", no_wrap=True, min_width=width)
    table.add_column("best at", no_wrap=True)
    richest = sorted(
        state.population.values(), key=lambda organelle: -state.ledger.balance(organelle.id)
    )
    for organelle in richest[: _shown(richest, rows)]:
        rate = organelle.genome.traits.get("learning_rate")
        table.add_row(
            Text(organelle.id),
            str(state.generation - organelle.born),
            f"{state.ledger.balance(organelle.id) / 1000:.1f}",
            "-" if rate is None else f"{rate:.4f}",
            Text(best_cells(state.posteriors.get(organelle.id, {}), cells)),
        )
    if (more := len(richest) - _shown(richest, rows)) > 0:
        table.add_row("…", "", "", "", f"and {more} more")
    return table


def servers_table(state: EcologyState, rows: int, width: int) -> Table:
    """Who serves how many habitats: a block for each, as high and as green as what it accepted
    lately."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("id", "age", "ATP", "accepted"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("serves", no_wrap=True)
    served = state.served
    organelles = sorted(state.population.values(), key=lambda o: -len(served.get(o.id, ())))
    for organelle in organelles[: _shown(organelles, rows)]:
        habitats = [state.habitats[name] for name in served.get(organelle.id, ())]
        answers = [answer for habitat in habitats for answer in habitat.answers]
        accepted = [answer for answer in answers if answer.is_accepted]
        blocks = [_block(_share(habitat)) for habitat in habitats[: max(width, 1)]]
        table.add_row(
            Text(organelle.id),
            str(state.generation - organelle.born),
            f"{state.ledger.balance(organelle.id) / 1000:.1f}",
            f"{len(accepted) / len(answers):.0%}" if answers else "–",
            Text.assemble(*blocks, f" {len(habitats)}") if habitats else Text("nobody", "dim"),
        )
    if (more := len(organelles) - _shown(organelles, rows)) > 0:
        table.add_row("…", "", "", "", f"and {more} more")
    return table


def _share(habitat: Habitat) -> float:
    """What a habitat accepted of its last answers."""
    return len(habitat.accepted) / max(len(habitat.answers), 1)


def best_cells(posteriors: Mapping[str, SuccessPosterior], count: int) -> str:
    """The cells of highest believed success, such as ``92% math.add/short``."""
    best = sorted(posteriors.items(), key=lambda entry: -entry[1].mean)[:count]
    return ", ".join(f"{posterior.mean:.0%} {cell}" for cell, posterior in best)


def cell_table(success: Mapping[str, float], rows: int) -> Table:
    """The population's moving average of success: one row per family, one column per depth."""
    depths = list(dict.fromkeys(cell.rpartition("/")[2] for cell in success))
    families = list(dict.fromkeys(cell_family(cell) for cell in success))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("family", no_wrap=True)
    for depth in depths:
        table.add_column(depth, justify="right")
    for family in families[: _shown(families, rows)]:
        shares = [success.get(f"{family}/{depth}") for depth in depths]
        cells = ("" if share is None else _coloured(share, f"{share:.0%}") for share in shares)
        table.add_row(Text(plain(family, WIDEST_NAME)), *cells)
    if (more := len(families) - _shown(families, rows)) > 0:
        table.add_row(f"… and {more} more")
    return table


def replies_table(transcripts: Sequence[Transcript], count: int, width: int) -> Table:
    """Some replies of the newest generation among these: who was asked, by whom or about what,
    whether it was right, the prompt and the reply. The lines are so many, with replies or not."""
    newest = [entry for entry in transcripts if entry.generation == transcripts[-1].generation]
    step = max(1, len(newest) // count)
    sample = newest[::-step][:count]
    names = [
        (plain(entry.id, WIDEST_NAME), plain(entry.habitat or cell_family(entry.cell), WIDEST_NAME))
        for entry in sample
    ]
    widths = (max(map(cell_len, column)) for column in zip(*names, strict=True))
    half = max(8, (width - sum(widths) - BESIDE_TEXTS) // 2)
    table = Table.grid(padding=(0, 1))
    for _ in ("who", "whom", "mark"):
        table.add_column(no_wrap=True)
    for _ in ("prompt", "reply"):
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=half)
    for (organelle_id, source), entry in zip(names, sample, strict=True):
        table.add_row(
            Text(organelle_id, "bold"),
            Text(source, "dim"),
            Text("yes", "green") if entry.is_right else Text("no", "red"),
            Text(plain(entry.prompt, half)),
            Text(f"→ {plain(entry.reply, half)}"),
        )
    for _ in range(count - table.row_count):
        table.add_row("")
    return table


def _shown(things: Sequence[object], rows: int) -> int:
    """How many of them fit into the rows; the last row says how many do not."""
    return len(things) if len(things) <= rows else rows - 1


def _block(share: float) -> Text:
    return _coloured(share, sparkline([share], high=1.0))


def _coloured(share: float, text: str) -> Text:
    """A text in the colour of a share."""
    return Text(text, style=_colour(share))


def _colour(share: float) -> str:
    return "red" if share < LOW else "yellow" if share < HIGH else "green"

"""``phylogeny``: who descends from whom, as a table that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from symbiont_ecology.cli.options import RunFolder, option


def phylogeny(
    folder: RunFolder,
    out: Annotated[
        Path | None,
        option("The file.", default="DIR/phylogeny.csv, or here where DIR is read-only"),
    ] = None,
    tree: Annotated[
        bool,
        option("Write only the first parent of a merge, for programs that read trees.", "--tree"),
    ] = False,
) -> None:
    """Write who descends from whom, in the artificial-life data standard."""
    from symbiont_ecology.engine.living import EVENTS_FILE
    from symbiont_ecology.engine.run import read_config
    from symbiont_ecology.event_log import read_events
    from symbiont_ecology.files import is_writable
    from symbiont_ecology.history.phylogeny import taxa_of, write_phylogeny

    read_config(folder, runs_plugins=False)  # raises where there is no run
    taxa = taxa_of(read_events(folder / EVENTS_FILE))
    path = out or (folder if is_writable(folder) else Path()) / "phylogeny.csv"
    write_phylogeny(taxa, path, is_tree=tree)
    print(f"{len(taxa)} organelles in {path}")

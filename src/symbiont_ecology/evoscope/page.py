"""The page: one HTML file with everything in it, which asks nothing of any network.

Its scripts are named by their hashes in the page's content security policy, so nothing that a model
wrote can ever run. Texts reach the page as JSON, and the page never reads them as HTML.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from symbiont_ecology.engine.living import EVENTS_FILE
from symbiont_ecology.engine.run import read_config
from symbiont_ecology.errors import RunError
from symbiont_ecology.event_log import read_events
from symbiont_ecology.evoscope.comparing import compared
from symbiont_ecology.evoscope.record import AskHost, PageRecord, run_record
from symbiont_ecology.files import write_whole
from symbiont_ecology.history.chronicle import NEWS_KINDS
from symbiont_ecology.history.history import History
from symbiont_ecology.transcripts import TRANSCRIPTS_FILE, read_transcripts

SCRIPTS = ("run", "canvas", "charts", "views", "lineage", "methods", "panels", "compare", "main")
"""In the order in which they need each other."""
_ASSETS = files("symbiont_ecology.evoscope") / "assets"


def page_record(folders: Sequence[Path], ask_host: AskHost | None = None) -> PageRecord:
    """What a page of these runs shows.

    Raises:
        RunError: one of them is no run, or its log is damaged.
    """
    runs, histories = list[PageRecord](), []
    for folder in folders:
        config = read_config(folder, runs_plugins=False)
        history = History.of(config, read_events(folder / EVENTS_FILE))
        transcripts = read_transcripts(folder / TRANSCRIPTS_FILE)
        runs.append(run_record(history, config, folder, transcripts, ask_host))
        histories.append((config, history))
    names = [folder.resolve().name for folder in folders]
    return whole_record(runs, compared(histories, names) if len(histories) > 1 else None)


def whole_record(runs: Sequence[PageRecord], comparison: object = None) -> PageRecord:
    """Records of runs with what the page needs beside them."""
    return {"runs": runs, "newsKinds": NEWS_KINDS, "comparison": comparison, "live": False}


def page_html(record: PageRecord) -> str:
    """The whole page as HTML."""
    script = "\n".join(
        ['"use strict";', *((_ASSETS / f"{name}.js").read_text("utf-8") for name in SCRIPTS)]
    )
    library = (_ASSETS / "vendor" / "echarts.min.js").read_text("utf-8")
    connect = "'self'" if record["live"] else "'none'"
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)}; "
        f"style-src 'unsafe-inline'; img-src data: blob:; connect-src {connect}; "
        "base-uri 'none'; form-action 'none'"
    )
    names = ", ".join(run["name"] for run in record["runs"]) or "phylogeny"
    parts = {
        "policy": policy,
        "title": _escaped(names),
        "style": (_ASSETS / "style.css").read_text("utf-8"),
        "record": embedded_json(record),
        "library": library,
        "script": script,
    }
    page = (_ASSETS / "page.html").read_text("utf-8")
    pieces = []
    for piece in page.split("{{ "):
        name, mark, rest = piece.partition(" }}")
        pieces.append(parts[name] + rest if mark else piece)
    return "".join(pieces)


def write_page(html: str, path: Path) -> None:
    """Writes the page; a page that was there is replaced as a whole.

    Raises:
        RunError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error
    write_whole(path, html)


def embedded_json(record: Mapping[str, Any]) -> str:
    """JSON that cannot end the element that it stands in; what is no finite number is null."""
    text = json.dumps(_finite(record), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return value


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

"""``evaluate --adapter``: questions to a PEFT adapter, alone or beside its bare host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.cli import console

if TYPE_CHECKING:
    from symbiont_ecology.evaluate.adapter_comparison import AdapterComparison
    from symbiont_ecology.evaluate.measure import Record

MAX_EXAMPLES, TEXT_SHOWN = 3, 60
"""Examples of every kind on a terminal, and characters of each text."""


@dataclass(frozen=True)
class AdapterExam:
    """Questions for an adapter, and their form. No prompt of ``trained_on`` may be asked."""

    adapter: Path
    holdout: Path | None
    host: str = "embedded"
    max_samples: int | None = None
    routing: str = "learned"
    style: str | None = None
    is_chat: bool = False
    is_compared: bool = False
    trained_on: Path | None = None


def examine_adapter(exam: AdapterExam, *, dry_run: bool) -> Record:
    """Ask an adapter, or say what it would be asked. All files are checked before the host is
    loaded.

    Raises:
        ConfigError: options that do not fit each other, or the questions.
        DataError: questions that cannot be used.
        AdapterError: an adapter that is damaged, or of another host.
    """
    from symbiont_ecology.adapters.peft_files import adapter_modules, stated_rank
    from symbiont_ecology.cli.options import typed_spec
    from symbiont_ecology.evaluate.adapter_comparison import compare_with_host
    from symbiont_ecology.evaluate.general import general_of_adapter
    from symbiont_ecology.evaluate.items import check_not_learned, in_style, read_items, some_of
    from symbiont_ecology.evaluate.measure import evaluate_adapter
    from symbiont_ecology.model.kernel import HostKernel
    from symbiont_ecology.model.locating import check_is_here
    from symbiont_ecology.tasks.synthetic.styles import prompt_styles

    if exam.holdout is None:
        raise ConfigError("evaluate --adapter: expected --holdout FILE, a JSONL file of questions")
    if exam.routing not in ("learned", "single", "host"):  # there is one candidate
        raise ConfigError(
            f"evaluate --adapter: expected --routing single or host, got {exam.routing!r}"
        )
    items = read_items(exam.holdout)
    style = None if exam.style is None else prompt_styles.build(typed_spec(exam.style))
    if exam.trained_on is not None:
        check_not_learned(items, exam.trained_on)
    items = some_of(items, exam.max_samples)
    if style is not None:
        items = in_style(items, style)
    adapter_modules(exam.adapter)  # a damaged adapter shows before the host is loaded
    check_is_here(exam.host)
    rank = stated_rank(exam.adapter)
    if dry_run:
        asked = f"{'the bare host, and ' * exam.is_compared}{exam.adapter} of rank {rank}"
        questions = f"{len(items)} ({exam.holdout})"
        console.tell_facts({"host": exam.host, "asked": asked, "questions": questions})
        return {}
    is_chat = exam.is_chat or (style is not None and style.is_chat)
    stops = () if style is None else style.stops
    kernel = HostKernel.from_pretrained(exam.host, slots=1, rank=rank, is_chat=is_chat)
    general = general_of_adapter(exam.adapter, kernel, is_chat=is_chat)
    with console.asking() as progress:
        if exam.is_compared:
            pair = compare_with_host(exam.adapter, items, kernel, progress=progress, stops=stops)
        else:
            bare = exam.routing == "host"
            found = evaluate_adapter(
                exam.adapter, items, kernel, is_bare=bare, progress=progress, stops=stops
            )
    if exam.is_compared:
        pair = replace(pair, adapter=replace(pair.adapter, general=general))
        _tell(pair)
        return pair.record()
    found = replace(found, general=general)
    console.tell_evaluation(found)
    return found.record()


def _tell(pair: AdapterComparison) -> None:
    """Print accuracy by category, what changed, how likely the reference answers are, and a few
    replies of every kind."""
    from symbiont_ecology.base.transcripts import plain
    from symbiont_ecology.base.types import last_turn
    from symbiont_ecology.evaluate.adapter_comparison import CHANGES

    rows = console.table("right, with 95 % interval", "questions", "host", "adapter", "+", "−")
    for name, part in {**pair.categories, "all": pair}.items():
        shares = (console.percent(side.accuracy()) for side in (part.host, part.adapter))
        gained, lost, *_ = map(str, part.counts.values())
        rows.add_row(escape(name), str(len(part.changes)), *shares, gained, lost)
    console.print_table(rows)
    gap = pair.difference
    print(f"adapter - host: {console.points(gap)}, {gap.test} p = {gap.p:.2g}")
    print(", ".join(f"{change} {count}" for change, count in pair.counts.items()))
    if answers := pair.answers:
        nats = answers.change
        print(
            f"perplexity of the reference answers: host {answers.host_perplexity:.3g}, adapter "
            f"{answers.perplexity:.3g} ({nats.estimate:+.2f} nats a token "
            f"[{nats.low:+.2f}, {nats.high:+.2f}])"
        )
    if pair.adapter.general:
        console.tell_general({"adapter": pair.adapter.general})
    for change in CHANGES.values():
        places = [place for place, kind in enumerate(pair.changes) if kind == change]
        step = max(len(places) // MAX_EXAMPLES, 1)  # from all over
        for place in places[::step][:MAX_EXAMPLES]:
            bare, adapted = pair.host.rollouts[place], pair.adapter.rollouts[place]
            texts = (last_turn(bare.item.prompt), bare.item.answer, bare.text, adapted.text)
            question, answer, host, adapter = (plain(text, TEXT_SHOWN) for text in texts)
            if place == places[0]:
                print(f"\n{change}:")
            print(f"  {question} (wanted: {answer})\n    host: {host}\n    adapter: {adapter}")
    print("next: --json FILE writes all replies")

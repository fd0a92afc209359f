"""``evaluate --adapter``: questions to a PEFT adapter, alone or beside its bare host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.markup import escape

from symbiont_ecology.cli import console
from symbiont_ecology.cli.options import option
from symbiont_ecology.errors import ConfigError

if TYPE_CHECKING:
    from symbiont_ecology.evaluation.adapter_comparison import AdapterComparison
    from symbiont_ecology.evaluation.measure import Record
    from symbiont_ecology.host.kernel import HostKernel
    from symbiont_ecology.tasks.synthetic.styles import PromptStyle
    from symbiont_ecology.types import Item

EXAMPLES_SHOWN, TEXT_SHOWN = 3, 60
"""Examples of every kind on a terminal, and characters of each text."""

CompareOption = Annotated[
    bool, option("With --adapter: ask the bare host, too, and compare.", "--compare")
]
PageOption = Annotated[Path | None, option("With --compare: a Markdown page to write.")]
TrainedOnOption = Annotated[
    Path | None, option("With --adapter: refuse questions whose prompts are in that file.")
]
AdapterStyleOption = Annotated[
    str | None,
    option("With --adapter: ask in a style, by name or {kind: …}.", default="as in the file"),
]
ChatOption = Annotated[bool, option("With --adapter: use the host's chat template.", "--chat")]


@dataclass(frozen=True)
class AdapterExam:
    """What an adapter is asked, and how.

    ``trained_on`` is a file whose prompts must not be asked, ``report`` a page to write.
    """

    adapter: Path
    holdout: Path | None
    host: str = "embedded"
    most: int | None = None
    routing: str = "learned"
    style: str | None = None
    is_chat: bool = False
    is_compared: bool = False
    report: Path | None = None
    trained_on: Path | None = None

    def check(self) -> None:
        """Whether all of it goes together.

        Raises:
            ConfigError: it does not.
        """
        if self.holdout is None:
            raise ConfigError(
                "evaluate --adapter: expected --holdout FILE, a JSONL file of questions"
            )
        if self.routing not in ("learned", "single", "host"):  # there is one candidate
            raise ConfigError(
                f"evaluate --adapter: expected --routing single or host, got {self.routing!r}"
            )
        if self.is_compared and self.routing == "host":
            raise ConfigError(
                "evaluate --compare: the host is asked beside the adapter: leave out --routing host"
            )


def examine_adapter(exam: AdapterExam, *, dry_run: bool) -> Record:
    """Asks an adapter, or says what it would be asked. All files are checked before the host is
    loaded.

    Raises:
        ConfigError: options that do not fit each other, or the questions.
        DataError: questions that cannot be used.
        AdapterError: an adapter that is damaged, or of another host.
    """
    from symbiont_ecology.evaluation.adapter_comparison import compare_with_host
    from symbiont_ecology.evaluation.general import general_of_adapter
    from symbiont_ecology.evaluation.measure import evaluate_adapter
    from symbiont_ecology.host.fitting import check_adapter_fits

    exam.check()
    style = _style(exam.style)
    items = _items(exam, style)
    check_adapter_fits(exam.adapter, exam.host)
    if exam.report is not None and not dry_run:
        console.prepare(exam.report)
    if dry_run:
        _tell_plan(exam, items)
        return {}
    kernel = _kernel(exam, style)
    stops = () if style is None else style.stops
    if exam.is_compared:
        with console.asking() as progress:
            result = compare_with_host(exam.adapter, items, kernel, progress=progress, stops=stops)
        general = general_of_adapter(exam.adapter, kernel, is_chat=kernel.is_chat)
        return _told(replace(result, adapter=replace(result.adapter, general=general)), exam)
    is_bare = exam.routing == "host"
    with console.asking() as progress:
        evaluation = evaluate_adapter(
            exam.adapter, items, kernel, is_bare=is_bare, progress=progress, stops=stops
        )
    general = general_of_adapter(exam.adapter, kernel, is_chat=kernel.is_chat)
    evaluation = replace(evaluation, general=general)
    console.tell_evaluation(evaluation)
    return evaluation.record()


def _told(comparison: AdapterComparison, exam: AdapterExam) -> Record:
    """Prints a comparison, writes its page if one is wanted, and gives it as plain values."""
    from symbiont_ecology.analysis.adapter_page import adapter_page
    from symbiont_ecology.evaluation.adapter_advice import advice
    from symbiont_ecology.files import write_whole

    recommended = advice(comparison)
    _tell_numbers(comparison)
    _tell_examples(comparison)
    print("\nwhat follows:")
    for line in recommended:
        print(f"- {line}")
    if exam.report is not None:
        write_whole(exam.report, adapter_page(comparison, recommended))
        print(f"report: {exam.report}")
    else:
        print("next: --report FILE writes a page, --json FILE all replies")
    return {**comparison.record(), "recommendations": recommended}


def _style(text: str | None) -> PromptStyle | None:
    """The style that is typed."""
    from symbiont_ecology.cli.options import typed_spec
    from symbiont_ecology.tasks.synthetic.styles import prompt_styles

    return None if text is None else prompt_styles.build(typed_spec(text))


def _items(exam: AdapterExam, style: PromptStyle | None) -> list[Item]:
    """What is asked."""
    from symbiont_ecology.evaluation.items import check_not_learned, in_style, read_items, some_of

    assert exam.holdout is not None  # exam.check
    items = read_items(exam.holdout)
    if exam.trained_on is not None:
        check_not_learned(items, exam.trained_on)
    items = some_of(items, exam.most)
    return items if style is None else in_style(items, style)


def _kernel(exam: AdapterExam, style: PromptStyle | None) -> HostKernel:
    """The host, with a slot that holds the adapter."""
    from symbiont_ecology.host.kernel import HostKernel
    from symbiont_ecology.weights.peft_files import stated_rank

    is_chat = exam.is_chat or (style is not None and style.is_chat)
    rank = stated_rank(exam.adapter)
    return HostKernel.from_pretrained(exam.host, slots=1, rank=rank, is_chat=is_chat)


def _tell_plan(exam: AdapterExam, items: Sequence[Item]) -> None:
    from symbiont_ecology.weights.peft_files import stated_rank

    asked = f"{exam.adapter} of rank {stated_rank(exam.adapter)}"
    facts = {
        "host": exam.host,
        "asked": f"the bare host, and {asked}" if exam.is_compared else asked,
        "questions": f"{len(items)} ({exam.holdout})",
    }
    console.tell_facts(facts)


def _tell_numbers(comparison: AdapterComparison) -> None:
    """Accuracy by category, what changed, and how likely the reference answers are."""
    rows = console.table("right, with 95 % interval", "questions", "host", "adapter", "+", "−")
    for name, part in {**comparison.groups, "all": comparison}.items():
        shares = (console.percent(side.accuracy()) for side in (part.host, part.adapter))
        counts = part.counts
        changes = (str(counts["improvement"]), str(counts["regression"]))
        rows.add_row(escape(name), str(len(part.pairs)), *shares, *changes)
    console.print_table(rows)
    difference = comparison.difference
    print(f"adapter - host: {console.points(difference)}, {difference.test} p = {difference.p:.2g}")
    print(", ".join(f"{change} {count}" for change, count in comparison.counts.items()))
    if answers := comparison.answers:
        nats = answers.change
        print(
            f"perplexity of the reference answers: host {answers.host_perplexity:.3g}, adapter "
            f"{answers.perplexity:.3g} ({nats.estimate:+.2f} nats a token "
            f"[{nats.low:+.2f}, {nats.high:+.2f}])"
        )
    if comparison.adapter.general:
        console.tell_general({"adapter": comparison.adapter.general})


def _tell_examples(comparison: AdapterComparison) -> None:
    """A few replies of every kind."""
    from symbiont_ecology.evaluation.adapter_comparison import CHANGES
    from symbiont_ecology.transcripts import plain
    from symbiont_ecology.types import last_turn

    for change in CHANGES:
        for place, pair in enumerate(comparison.examples(change, EXAMPLES_SHOWN)):
            if not place:
                print(f"\n{change}:")
            texts = (last_turn(pair.item.prompt), pair.item.answer, pair.host.text)
            question, answer, bare, adapted = (
                plain(text, TEXT_SHOWN) for text in (*texts, pair.adapter.text)
            )
            print(f"  {question} (wanted: {answer})\n    host: {bare}\n    adapter: {adapted}")

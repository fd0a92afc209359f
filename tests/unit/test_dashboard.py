"""What a run shows while it lives: the screen, the lines, the time to go."""

from __future__ import annotations

from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from symbiont_ecology.analysis.dashboard import Dashboard
from symbiont_ecology.analysis.life_tables import legend, replies_table
from symbiont_ecology.analysis.narrator import Narrator
from symbiont_ecology.analysis.pace import Pace, RunLength, duration
from symbiont_ecology.analysis.trends import BLOCKS, MOST_POINTS, Trend, sparkline
from symbiont_ecology.config import LoopConfig, RunConfig
from symbiont_ecology.ecology import EcologyState
from symbiont_ecology.economics import Cost
from symbiont_ecology.engine.run import start
from symbiont_ecology.events import GenerationEnded
from symbiont_ecology.transcripts import Transcript
from toy import ToyHost, toy_config

REPLY = Transcript(4, "o1", "practice", "math.add/short", "i", "math.add: 1+1", "2", 1.0, 9, -0.5)


@dataclass
class Clock:
    """A clock that goes on when it is looked at."""

    step: float = 1.0
    now: float = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def screen(width: int = 120, height: int = 40) -> Console:
    return Console(
        file=StringIO(), force_terminal=True, color_system=None, width=width, height=height
    )


def said(console: Console) -> str:
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def rendered(shown: Any, width: int = 80) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(shown)
    return said(console)


def town(generations: int) -> RunConfig:
    """Six users of three kinds."""
    return toy_config(generations=generations, strategy="told")


def test_the_screen_tells_of_births_deaths_and_cells(tmp_path: Path) -> None:
    config, console = toy_config(generations=12), screen()
    with Dashboard(RunLength(config.run), console, "toy", clock=Clock()) as dashboard:
        state = start(config, tmp_path / "run", host=ToyHost(), watch=dashboard).state
    text = said(console)
    assert " born of o" in text
    assert " generations old" in text
    assert "math.add" in text
    assert all(f" {organelle_id} " in text for organelle_id in state.population)


def test_news_within_a_generation_stand_in_the_title(tmp_path: Path) -> None:
    config, console = toy_config(generations=2), screen()
    with Dashboard(RunLength(config.run), console, "toy", clock=Clock()) as dashboard:
        dashboard.tell("loading the host …")
        start(config, tmp_path / "run", host=ToyHost(), watch=dashboard)
        dashboard.tell("first food of o9, step 2 of 8, about 30 s left")
        last = said(console)
    assert "loading the host …" in last
    assert " toy: first food of o9, step 2 of 8, about 30 s left " in last
    assert last.count(" generation 1 ") == 2  # the screen stays as it was


def test_who_is_born_after_an_extinction_is_told(tmp_path: Path) -> None:
    config, console = toy_config(generations=1), screen()
    states = list[tuple[EcologyState, GenerationEnded]]()
    start(
        config,
        tmp_path / "run",
        host=ToyHost(),
        watch=lambda state, summary, _: states.append((state, summary)),
    )
    ((state, summary),) = states
    with Dashboard(RunLength(config.run), console, "toy", clock=Clock()) as dashboard:
        for number, population in enumerate((state.population, {}, state.population)):
            dashboard(replace(state, population=population), replace(summary, generation=number), 1)
    text = said(console)
    assert " generations old" in text
    assert f"   2  {next(iter(state.population))} born" in text


@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 45)])
@pytest.mark.parametrize("config", [toy_config(generations=12), town(12)], ids=["cells", "town"])
def test_every_line_of_the_screen_fits(
    config: RunConfig, width: int, height: int, tmp_path: Path
) -> None:
    folder, console = tmp_path / "run", screen(width, height)
    replies = folder / "transcripts.jsonl"
    dashboard = Dashboard(RunLength(config.run), console, "a run", replies, clock=Clock())
    with dashboard:
        start(config, folder, host=ToyHost(), watch=dashboard)
    last = said(console).rpartition("╭")[2].splitlines()
    assert len(last) < height
    assert all(len(line) <= width for line in last[:-1])
    assert not any("…" in line for line in last if "right:" in line or "a habitat" in line)
    assert any(" → " in line for line in last)
    assert any(set(line) & set(BLOCKS) for line in last)
    assert "left 0:00" in said(console)


def test_screens_are_not_drawn_faster_than_one_can_look(tmp_path: Path) -> None:
    config, console = toy_config(generations=12), screen()
    with Dashboard(RunLength(config.run), console, "toy", clock=Clock(0.001)) as dashboard:
        start(config, tmp_path / "run", host=ToyHost(), watch=dashboard)
        assert "generation 11 " not in said(console)
    assert "generation 11 " in said(console)
    assert "generation 0 " in said(console)
    assert "generation 5 " not in said(console)


def test_the_legend_names_every_colour() -> None:
    for has_habitats in (True, False):
        words = legend(has_habitats)
        styles = {str(span.style) for span in words.spans}
        assert {"red", "yellow", "green"} <= styles
        assert "<33%" in words.plain
        assert len(words) <= 76


def test_texts_of_models_and_data_reach_the_screen_as_plain_letters() -> None:
    odd = replace(
        REPLY,
        prompt="[bold]one\x1b[2J\nline[/bold]",
        reply="\x9b31m\u202eevil\r\x07\x00 [/]",
        habitat="[red]\x1b]0;me\x07",
    )
    text = rendered(replies_table([odd], 2, 140), 140)
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert "[bold]one\\u001b[2J\\nline[/bold]" in text
    assert "→ \\u009b31m\\u202eevil\\r\\u0007\\u0000 [/]" in text
    assert text.count("\n") == 2


def test_replies_of_the_newest_generation_pass_by_right_or_wrong() -> None:
    old = replace(REPLY, generation=3, reply="old")
    wrong = replace(REPLY, id="o2", verdict=0.0, habitat="h07", reply="three")
    text = rendered(replies_table([old, REPLY, wrong], 3, 76))
    first, second, third = (line.split() for line in text.splitlines())
    assert first == ["o2", "h07", "no", "math.add:", "1+1", "→", "three"]
    assert second == ["o1", "math.add", "yes", "math.add:", "1+1", "→", "2"]
    assert not third
    assert rendered(replies_table([], 2, 76)).split() == []


def test_prompts_and_replies_take_the_room_that_names_leave() -> None:
    long = replace(REPLY, habitat="h07", prompt="1+" * 200, reply="2" * 200)
    for width in (76, 107, 136):
        (line,) = rendered(replies_table([long], 1, width), width).splitlines()
        assert width - 1 <= len(line) <= width
        assert line.count("…") == 2


def test_a_sparkline_goes_from_the_lowest_to_the_highest() -> None:
    assert sparkline([0.0, 0.5, 1.0], high=1.0) == "▁▅█"
    assert sparkline([0.5, None, 0.5], high=1.0) == "▅ ▅"
    assert sparkline([3, 6]) == "▅█"
    assert sparkline([-2, 0, 2]) == "▁▅█"
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([]) == ""


def test_a_trend_keeps_the_whole_course_in_bounded_memory() -> None:
    trend, length = Trend(), 10 * MOST_POINTS + 3
    for number in range(length):
        trend.add(float(number))
    points = [point for point in trend.points(8) if point is not None]
    assert len(points) == 8
    assert points == sorted(points)
    assert points[0] < length / 8 < 7 * length / 8 < points[-1]
    assert len(trend.points(length)) <= MOST_POINTS


def test_a_trend_of_few_values_shows_each_and_gaps_stay_gaps() -> None:
    trend = Trend()
    for value in (1.0, None, 3.0):
        trend.add(value)
    assert trend.points(10) == [1.0, None, 3.0]
    assert trend.points(1) == [2.0]
    assert trend.points(0) == []
    assert Trend().points(5) == []


def lines_of(config: RunConfig, folder: Path, clock: Clock) -> list[str]:
    console = Console(file=StringIO(), width=40)
    with Narrator(RunLength(config.run), console, Console(stderr=True), clock=clock) as narrator:
        start(config, folder, host=ToyHost(), watch=narrator)
    return said(console).splitlines()


def test_lines_come_every_few_seconds_the_first_at_once_and_the_last_always(tmp_path: Path) -> None:
    config = toy_config(generations=20)
    all_lines = lines_of(config, tmp_path / "slow", Clock(9.0))
    assert [line.split()[1] for line in all_lines] == [str(number) for number in range(20)]
    few = lines_of(config, tmp_path / "fast", Clock(0.001))
    assert [line.split()[:3] for line in few] == [
        ["generation", "0", "5%"],
        ["generation", "19", "100%"],
    ]
    assert "left 0:00" in few[-1]


def test_a_line_counts_all_births_and_deaths_since_the_last_one(tmp_path: Path) -> None:
    config = toy_config(generations=20)
    totals = []
    for name, step in (("slow", 9.0), ("middle", 1.0), ("fast", 0.001)):
        counts = [
            [int(line.split(f" {sign}")[1].split()[0]) for sign in "+-"]
            for line in lines_of(config, tmp_path / name, Clock(step))
        ]
        totals.append([sum(column) for column in zip(*counts, strict=True)])
    assert totals[0] == totals[1] == totals[2]
    assert min(totals[0]) > 0


def test_a_line_of_a_run_that_asks_nothing_says_so(tmp_path: Path) -> None:
    reading: dict[str, Any] = {"strategy": {"kind": "single", "samples": 0}}
    config = toy_config(generations=3, learning_rule="supervised", **reading)
    for line in lines_of(config, tmp_path / "run", Clock(9.0)):
        assert "  nothing asked  " in line
        assert "right" not in line


def state_at(generation: int, **spent: int) -> EcologyState:
    state = EcologyState(0)
    state.generation, state.spent, state.mean_rollout_flops = generation, Cost(**spent), 10
    return state


@pytest.mark.parametrize(
    ("limit", "fraction"),
    [
        ({}, 0.5),
        ({"train_flops": 100.0}, 0.8),
        ({"train_flops": 60.0}, 1.0),
        ({"train_rollouts": 16.0}, 0.5),
        ({"train_rollouts": 10.0}, 0.8),
        ({"train_tokens": 40.0}, 0.75),
        ({"train_seconds": 100.0}, 0.9),
    ],
)
def test_the_nearest_end_counts(limit: dict[str, float], fraction: float) -> None:
    plan = RunLength(LoopConfig(generations=10, **limit), before=50.0)
    assert plan.fraction(state_at(5, flops=80, tokens_in=30), 40.0) == fraction


def test_time_to_go_follows_the_pace_of_late() -> None:
    clock = Clock(0.0)
    pace = Pace(RunLength(LoopConfig(generations=1000)), clock)
    assert pace.left == "?"
    for generation in range(1, 101):
        clock.now += 1.0
        pace.advance(state_at(generation), 1.0)
    assert pace.left == "15:00"
    for generation in range(101, 701):
        clock.now += 2.0
        pace.advance(state_at(generation), 2.0)
    assert pace.left == "10:00"


def test_durations_read_well() -> None:
    assert [duration(seconds) for seconds in (0, 59.6, 200, 3800, 432000)] == [
        *("0:00", "1:00", "3:20", "1:03:20", "5 days")
    ]

"""``learn-from``: a log in, adapters and who uses which out; interrupted, it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hosts import add_chat_template, make_host
from killing import interrupted
from said import Symbiont
from symbiont_ecology.base.shipped import find_data


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The first rows of the log that comes with the package: four kinds of users."""
    lines = find_data(Path("logs/thumbs.jsonl")).read_text().splitlines()[:360]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_log_becomes_adapters_that_go_on_after_ctrl_c(
    symbiont: Symbiont, log: Path, tmp_path: Path
) -> None:
    folder, whole = tmp_path / "learned", tmp_path / "whole"
    words = ["learn-from", str(log), "--out", str(folder)]
    errors = interrupted(words, until="generation    0")
    assert f"learn-from {log} --out {folder}" in errors

    said = symbiont(*words)
    assert said.code == 0, said.err
    report = json.loads((folder / "report.json").read_text())
    served = json.loads((folder / "adapters" / "users.json").read_text())["users"]
    assert sorted(served) == sorted(name for group in report["groups"] for name in group["users"])
    assert [len(group["users"]) for group in report["groups"]] == [6, 6, 6, 6]
    adapters = [folder / "adapters" / group["adapter"] for group in report["groups"]]
    assert all((adapter / "adapter_config.json").exists() for adapter in adapters)
    auc = {arm: measured["estimate"] for arm, measured in report["auc"].items()}
    assert auc["groups"] > max(auc["all"], auc["random"], auc["bare"])
    assert report["ours_above"]["bare"]["low"] > 0
    assert f"use the adapters? {report['advice']}" in said.out
    assert "<h3>g4:" in (folder / "report.html").read_text()
    assert "### g4:" in (folder / "report.md").read_text()
    assert f"infer {folder} PROMPT --user" in said.out

    assert symbiont("learn-from", log, "--out", whole, "--quiet").code == 0
    assert json.loads((whole / "report.json").read_text())["auc"] == report["auc"]
    assert (folder / "events.jsonl").read_bytes() == (whole / "events.jsonl").read_bytes()
    assert symbiont("infer", folder, "math.add: 47+8", "--user", "h05").code == 0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("nothing.jsonl",), "log nothing.jsonl: no such file"),
        (("{log}", "--user", "who"), "no column 'who'; it has user, family, prompt"),
        (("{log}", "--passes", "0"), "--passes: expected a number above 0, got 0"),
        (("{log}", "--host", "nowhere/at-all", "--dry-run", "tasks.depths=[long]"), "tasks.depths"),
    ],
)
def test_a_mistake_is_one_line_before_a_model_is_loaded(
    words: tuple[str, ...], error: str, symbiont: Symbiont, log: Path, tmp_path: Path
) -> None:
    typed = [word.replace("{log}", str(log)) for word in words]
    said = symbiont("learn-from", *typed, "--out", tmp_path / "run")
    assert said.code == 2
    assert error in said.error
    assert not (tmp_path / "run").exists()


def test_families_may_be_any_words(symbiont: Symbiont, log: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in log.read_text().splitlines()[:96]]
    words = {"math.add": "😀 sums: [a]", "word.count": "yes", "logic.bool": "1e3"}
    for row in rows:
        row["family"] = words.get(row["family"], row["family"])
    path = tmp_path / "words.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    out = tmp_path / "run"
    said = symbiont("learn-from", path, "run.generations=2", "--out", out, "--quiet")
    assert said.code == 0, said.err
    assert symbiont("resume", out, "run.generations=3", "--quiet").code == 0


@pytest.mark.parametrize("too_long", ["aside", "cut"])
def test_rows_that_are_too_long_are_named_at_once_and_set_aside_or_cut(
    too_long: str, symbiont: Symbiont, log: Path, tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in log.read_text().splitlines()[:48]]
    for place in (10, 40):
        rows[place]["prompt"] = 600 * "a" + "b"
    rows[20]["user"] = None
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("learn-from", log, "run.generations=1", "--too-long", too_long)
    said = symbiont(*words, "--dry-run").out
    assert "2 rows too long for the model, " in said
    assert ": line 11, 41" in said
    assert "1 row set aside, without a user: line 21" in said
    assert symbiont(*words, "--out", tmp_path / "run", "--quiet").code == 0
    kept = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert len(kept) == (45 if too_long == "aside" else 47)
    cut = [row["prompt"][0]["content"] for row in kept if "aaaa" in str(row["prompt"])]
    assert all(prompt.endswith("ab") and len(prompt) < 512 for prompt in cut)
    assert len(cut) == (0 if too_long == "aside" else 2)


def test_a_row_whose_reply_is_too_long_is_set_aside_also_where_prompts_are_cut(
    symbiont: Symbiont, log: Path
) -> None:
    rows = [json.loads(line) for line in log.read_text().splitlines()[:48]]
    rows[10]["prompt"], rows[40]["reply"] = 600 * "a", 600 * "b"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = symbiont("learn-from", log, "--too-long", "cut", "--dry-run").out
    assert "1 row too long for the model, prompts cut at their beginning: line 11" in said
    assert "1 row too long for the model, set aside: line 41" in said


def test_a_log_in_which_nothing_counts_as_accepted_says_so(symbiont: Symbiont, log: Path) -> None:
    said = symbiont("learn-from", log, "--accepted-as", "ja", "--dry-run")
    assert f"log {log}: none of 360 replies counts as accepted" in said.error
    said = symbiont("learn-from", log, "--accepted-as", "ja", "--accepted-from", "1")
    assert "accepted_as: expected it or accepted_from, got both" in said.error


def test_a_table_of_a_company_goes_in_without_a_flag(symbiont: Symbiont, tmp_path: Path) -> None:
    """Semicolons, other names, numbers for users, words for verdicts, and seconds."""
    head = "User ID;Question;Answer;Thumb;ts\n"
    rows = [
        f"{1000 + n % 3};math.add: {n}+1;{n + 1};{'👍' if n % 4 else '👎'};{1763800000 - n}"
        for n in range(40)
    ]
    path = tmp_path / "thumbs.csv"
    path.write_text(head + "\n".join(rows) + "\n", encoding="utf-16")
    said = symbiont("learn-from", path, "--dry-run")
    assert said.code == 0, said.err
    assert "40 rows with reply and verdict, 75% accepted; users: 3" in said.out
    assert (
        "user = User ID, prompt = Question, reply = Answer, accepted = Thumb, time = ts" in said.out
    )
    stars = tmp_path / "stars.csv"
    stars.write_text(
        "user,prompt,reply,stars\n" + "".join(f"u{n},p{n},r,{n % 5 + 1}\n" for n in range(30))
    )
    refused = symbiont("learn-from", stars, "--dry-run")
    assert (refused.code, "--accepted-from 4" in refused.error) == (2, True)
    said = symbiont("learn-from", stars, "--accepted-from", "4", "--dry-run")
    assert "40% accepted" in said.out


def test_a_user_is_known_in_every_spelling_of_the_name(
    symbiont: Symbiont, log: Path, tmp_path: Path
) -> None:
    text = log.read_text()
    for user, name in {"h04": "Jean\xa0Luc", "h05": "علی\u200cرضا", "h06": "Rene\u0301"}.items():
        text = text.replace(f'"{user}"', json.dumps(name))
    log.write_text(text)
    out = tmp_path / "run"
    assert symbiont("learn-from", log, "run.generations=3", "--out", out, "--quiet").code == 0
    for name in ("Jean Luc", "Jean\xa0Luc", "علی\u200cرضا", "Ren\u00e9", "Rene\u0301"):
        assert symbiont("infer", out, "math.add: 47+8", "--user", name).code == 0, name
    assert "knows no user 'Jean-Luc'" in symbiont("infer", out, "a", "--user", "Jean-Luc").err


def test_who_asks_must_be_said_where_a_log_was_learned(
    symbiont: Symbiont, log: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert symbiont("learn-from", log, "run.generations=3", "--out", out, "--quiet").code == 0
    assert "expected who asks, --user ID" in symbiont("infer", out, "math.add: 47+8").error
    said = symbiont("export", out)
    index = json.loads((out / "export" / "index.json").read_text())
    assert said.out.startswith(f"{len(index['organelles'])} adapters in ")
    assert all(organelle["users"] for organelle in index["organelles"])
    assert index["believed_by"] == "replies of a log"


def test_another_log_is_not_learned_into_the_same_folder(
    symbiont: Symbiont, log: Path, tmp_path: Path
) -> None:
    out = ("--out", tmp_path / "run", "--quiet")
    assert symbiont("learn-from", log, "run.generations=2", *out).code == 0
    said = symbiont("learn-from", log, "run.generations=2", "seed=3", *out)
    assert said.code == 2
    assert "holds a run with another config" in said.err
    log.write_text(log.read_text().replace("true", "false", 1))
    changed = symbiont("learn-from", log, "run.generations=2", *out)
    assert (changed.code, said.err) == (2, changed.err)


def _plan(symbiont: Symbiont, *words: object) -> str:
    said = symbiont("learn-from", *words, "--dry-run")
    assert said.code == 0, said.err
    return said.out[said.out.index("\nhost ") :] + said.err


def test_a_host_has_its_own_settings_however_it_is_named(
    symbiont: Symbiont, log: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # it is not here, and need not be
    for name in ("smollm2", "gemma3-270m"):
        plan = _plan(symbiont, log, "--host", name)
        assert plan == _plan(symbiont, log, f"host={name}")
        assert "learning rate 0.001\n" in plan
        assert "no preset" not in plan
    assert "learning rate 0.01\n" in _plan(symbiont, log)
    assert "learning rate 0.02\n" in _plan(
        symbiont, log, "--host", "smollm2", "strategy.learning_rate=0.02"
    )


@pytest.mark.parametrize(
    ("words", "has_template"),
    [(("--host", "{}"), True), (("host={}",), True), (("host.model={}",), False)],
)
def test_what_is_assumed_of_a_host_without_preset_is_told(
    words: tuple[str, ...], has_template: bool, symbiont: Symbiont, log: Path, tmp_path: Path
) -> None:
    host = make_host(tmp_path / "host", layers=1)
    if has_template:
        add_chat_template(host)
    plan = _plan(symbiont, log, *(word.format(host) for word in words))
    template = "its" if has_template else "no"
    assert f"learning rate 0.004 and {template} chat template; " in plan
    assert f"symbiont look steady host={host}" in plan

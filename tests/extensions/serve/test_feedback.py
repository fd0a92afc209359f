"""What users say: whose answer it is, what counts, and who may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from in_service import NEVER_LEARNS, Serve, Served, wait_until
from symbiont_ecology.extensions.serve.limits import ApiKeys, add_key


def test_a_score_from_one_half_on_is_a_yes(served: Served) -> None:
    names = [served.ask(user="ada").json()["id"] for _ in range(2)]
    given = [
        served.judge(name, score=score).json()["accepted"]
        for name, score in zip(names, (0.4, 0.5), strict=True)
    ]
    assert given == [False, True]


def test_the_same_verdict_twice_is_fine_and_another_one_is_not(served: Served) -> None:
    name = served.ask(user="ada").json()["id"]
    codes = [served.judge(name, accepted=said).status_code for said in (True, True, False)]
    assert codes == [200, 200, 409]
    kept = served.service.journal.verdict(name, 0)
    assert kept is not None
    assert kept.is_accepted
    assert served.service.journal.verdicts == 1


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"accepted": True, "choice": 2}, 200),
        ({"accepted": True, "choice": 3}, 400),
        ({}, 400),
        ({"accepted": True, "score": 1.0}, 400),
        ({"score": 2}, 400),
        ({"like": 1}, 400),
        ({"accepted": True, "user": "bob"}, 404),
        ({"accepted": True, "id": "chatcmpl-nothing"}, 404),
    ],
)
def test_a_verdict_says_one_thing_about_an_own_reply(
    served: Served, said: dict[str, object], status: int
) -> None:
    name = served.ask(user="ada", n=3).json()["id"]
    assert served.client.post("/v1/feedback", json={"id": name, **said}).status_code == status
    assert served.service.journal.verdicts == (status == 200)


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    path = tmp_path / "keys.jsonl"
    return path, {name: add_key(path, name or None) for name in ("ada", "bob", "")}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_a_key_is_needed_and_that_of_a_user_is_for_this_user_alone(
    serve: Serve, keys: tuple[Path, dict[str, str]]
) -> None:
    served = serve(limits=NEVER_LEARNS, keys=ApiKeys.read(keys[0]))
    for key in ({}, bearer("symbiont-wrong")):
        served.client.headers = key
        assert served.ask().status_code == 401
        for path in ("/v1/models", "/metrics", "/ecology", "/record.json"):
            assert served.client.get(path).status_code == 401
    served.client.headers = bearer(keys[1]["ada"])
    name = served.ask().json()["id"]
    answer = served.service.journal.answer(name)
    assert answer is not None
    assert answer.user == "ada"
    assert served.ask(user="bob").status_code == 403
    served.client.headers = bearer(keys[1]["bob"])
    assert served.judge(name, accepted=False).status_code == 404
    assert served.judge(name, accepted=False, user="ada").status_code == 403
    assert served.ask(model=next(iter(served.service.snapshot.weights))).status_code == 404
    served.client.headers = bearer(keys[1][""])
    assert served.judge(name, accepted=True, user="ada").status_code == 200
    assert served.ask(user="anybody").status_code == 200


def test_pages_that_show_all_users_want_a_key_of_an_application(
    serve: Serve, keys: tuple[Path, dict[str, str]]
) -> None:
    served = serve(keys=ApiKeys.read(keys[0]))
    served.client.headers = bearer(keys[1]["ada"])
    answer = served.ask("word.count: adas own words").json()
    assert served.judge(answer["id"], accepted=True).status_code == 200
    wait_until(lambda: served.service.generation)
    pages = ("/ecology", "/record.json")
    served.client.headers = bearer(keys[1][""])
    shown = [served.client.get(path) for path in pages]
    assert [page.status_code for page in shown] == [200, 200]
    assert all("adas own words" in page.text for page in shown)
    served.client.headers = bearer(keys[1]["bob"])
    refused = [served.client.get(path) for path in pages]
    assert [page.status_code for page in refused] == [403, 403]
    assert all("expected a key of an application" in page.text for page in refused)
    assert not any("adas own words" in page.text for page in refused)
    assert served.client.get("/openapi.json").status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost"}, 200),
        ({"Host": "[::1]:8000", "Origin": "http://[::1]:8000"}, 200),
    ],
)
def test_a_page_of_the_web_cannot_reach_a_service_without_keys(
    served: Served, headers: dict[str, str], status: int
) -> None:
    asked = {"messages": [{"role": "user", "content": "hello"}]}
    answer = served.client.post("/v1/chat/completions", json=asked, headers=headers)
    assert answer.status_code == status


def test_a_user_sees_its_own_verdicts_once_they_are_learned(serve: Serve) -> None:
    served = serve()
    organelle = served.accept(user="ada")
    served.accept(user="bob")
    served.learn_all()
    said = {"user": "ada", "verdicts": [{"accepted": True, "organelle": organelle}]}
    wait_until(lambda: served.client.get("/v1/feedback?user=ada").json() == said)
    metrics = served.client.get("/metrics").text
    assert "symbiont_users_without_accepted 0.0" in metrics


def test_a_key_of_a_user_shows_no_verdicts_of_others(
    serve: Serve, keys: tuple[Path, dict[str, str]]
) -> None:
    path, known = keys
    client = serve(keys=ApiKeys.read(path)).client
    codes = [
        client.get(f"/v1/feedback{asked}", headers=bearer(known["ada"])).status_code
        for asked in ("", "?user=ada", "?user=bob")
    ]
    assert codes == [200, 200, 403]

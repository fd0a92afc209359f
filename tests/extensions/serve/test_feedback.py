"""What users say: whose answer it is, what counts, and who may not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from in_service import NEVER_LEARNS, Serve, Served, wait_until
from symbiont_ecology.extensions.serve.limits import ApiKeys, add_key
from symbiont_ecology.extensions.serve.messages import RequestRefusedError
from symbiont_ecology.extensions.serve.openai_api import FeedbackRequest


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


TENSORZERO = {"inference_id": "a", "metric_name": "thumbs_up"}
LANGFUSE = {"traceId": "a", "name": "thumb"}
TELEMETRY = {"gen_ai.response.id": "a", "gen_ai.evaluation.name": "Relevance"}
VALUE, LABEL = "gen_ai.evaluation.score.value", "gen_ai.evaluation.score.label"
WANTED = [{"type": "text", "text": "Rain."}]


@pytest.mark.parametrize(
    ("body", "read"),
    [
        ({"id": "a", "accepted": True, "correction": "Rain."}, (True, None, "", "Rain.")),
        ({"id": "a", "correction": "Rain."}, (None, None, "", "Rain.")),
        (TENSORZERO | {"value": True}, (True, None, "", "")),
        (TENSORZERO | {"value": False, "tags": {"who": "ada"}}, (False, None, "", "")),
        (TENSORZERO | {"value": 0.5}, (None, 0.5, "", "")),
        (
            TENSORZERO | {"metric_name": "demonstration", "value": "Rain."},
            (None, None, "", "Rain."),
        ),
        (TENSORZERO | {"metric_name": "demonstration", "value": WANTED}, (None, None, "", "Rain.")),
        (LANGFUSE | {"name": "novelty", "value": 0.9, "environment": "test"}, (None, 0.9, "", "")),
        (LANGFUSE | {"name": "sentiment", "value": "positive"}, (True, None, "", "")),
        (
            LANGFUSE | {"value": 0, "dataType": "BOOLEAN", "comment": "why"},
            (False, None, "why", ""),
        ),
        (LANGFUSE | {"value": 1, "dataType": "BOOLEAN", "configId": "c"}, (True, None, "", "")),
        (LANGFUSE | {"value": "True", "dataType": "BOOLEAN", "id": "s"}, (True, None, "", "")),
        (
            {"traceId": "t", "observationId": "a", "name": "accuracy", "value": 0.2},
            (None, 0.2, "", ""),
        ),
        (LANGFUSE | {"value": "Rain.", "dataType": "CORRECTION"}, (None, None, "", "Rain.")),
        (TELEMETRY | {VALUE: 1.0, "gen_ai.evaluation.explanation": "x"}, (None, 1.0, "x", "")),
        (TELEMETRY | {VALUE: 4.0, LABEL: "pass"}, (True, None, "", "")),
        (TELEMETRY | {LABEL: "fail"}, (False, None, "", "")),
        (TELEMETRY | {LABEL: "relevant"}, (True, None, "", "")),
        (TELEMETRY | {LABEL: "not_relevant"}, (False, None, "", "")),
    ],
    ids=str,
)
def test_feedback_of_other_products_is_read(body: dict[str, object], read: tuple[object]) -> None:
    said = FeedbackRequest.read(json.dumps(body).encode())
    assert said.id == "a"
    assert (said.accepted, said.score, said.comment, said.correction) == read


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (TENSORZERO | {"value": 4.5}, "value"),
        (TENSORZERO, "value"),
        (TENSORZERO | {"metric_name": "comment", "value": "good"}, "value"),
        (TENSORZERO | {"metric_name": "demonstration", "value": {"a": 1}}, "value"),
        (TENSORZERO | {"value": True, "dryrun": True}, "dryrun"),
        ({"episode_id": "a", "metric_name": "solved", "value": True}, "inference_id"),
        (LANGFUSE | {"value": "partially correct", "dataType": "CATEGORICAL"}, "value"),
        (LANGFUSE | {"value": "good", "dataType": "TEXT"}, "value"),
        (LANGFUSE | {"name": "hallucination", "value": 0, "dataType": "BOOLEAN"}, "name"),
        (LANGFUSE | {"value": 1, "sessionId": "s"}, "sessionId"),
        ({"sessionId": "s", "name": "thumb", "value": 1}, "observationId or traceId"),
        (TELEMETRY | {VALUE: 4.0}, VALUE),
        (TELEMETRY | {"error.type": "timeout"}, VALUE),
    ],
    ids=str,
)
def test_feedback_that_is_no_verdict_is_refused_by_name(
    body: dict[str, object], param: str
) -> None:
    with pytest.raises(RequestRefusedError, match=f"^{param}: expected ") as refused:
        FeedbackRequest.read(json.dumps(body).encode())
    assert len(str(refused.value).splitlines()) == 1


def test_a_correction_is_kept_with_the_verdict_that_it_follows(served: Served) -> None:
    name = served.ask(user="ada").json()["id"]
    assert served.judge(name, accepted=False).status_code == 200
    wanted = {"inference_id": name, "metric_name": "demonstration", "value": "Rain."}
    codes = [served.client.post("/v1/feedback", json=wanted).status_code for _ in range(2)]
    assert codes == [200, 200]
    kept = served.service.journal.verdict(name, 0)
    assert kept is not None
    assert (kept.is_accepted, kept.correction) == (False, "Rain.")
    assert served.service.journal.verdicts == 1
    assert served.service.journal.path.read_text().count("correction") == 1


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

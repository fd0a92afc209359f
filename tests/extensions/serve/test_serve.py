"""``symbiont serve`` as a process, with the clients that people have."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest

pytest.importorskip("fastapi")

from in_service import TOWN
from said import Symbiont
from served import QUESTION, Client, RefusedError, ServerProcess
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.extensions.serve.journal import Journal
from symbiont_ecology.run.open_run import JOURNAL_FILE

httpx = pytest.importorskip("httpx")


async def accept(port: int, turns: int) -> list[str]:
    """One user asks and accepts; the names of the answers."""
    names = list[str]()
    async with Client(port) as client:
        for turn in range(turns):
            names.append((await client.ask("ada", seed=turn))["id"])
            await client.judge(names[-1], accepted=True)
    return names


@pytest.fixture(scope="module")
def server(founded: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One for all clients, which do not learn."""
    copy = Path(shutil.copytree(founded, tmp_path_factory.mktemp("served") / "town"))
    process = ServerProcess(copy, "--learn-share", "0")
    yield process
    assert process.stop() == 0


def test_curl_gets_an_answer(server: ServerProcess) -> None:
    told = next(line for line in server.log if line.startswith("try: ")).removeprefix("try: ")
    done = subprocess.run(told, shell=True, capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["choices"][0]["message"]["role"] == "assistant"


def test_the_openai_package_chats_and_streams(server: ServerProcess) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none")
    assert {"ecology", "host"} <= {model.id for model in client.models.list()}
    asked = {"model": "ecology", "messages": [{"role": "user", "content": QUESTION}], "seed": 5}
    whole = client.chat.completions.create(**asked, user="ada")
    parts = client.chat.completions.create(
        **asked, user="ada", stream=True, stream_options={"include_usage": True}
    )
    text, usage = "", None
    for part in parts:
        usage = part.usage or usage
        text += "".join(choice.delta.content or "" for choice in part.choices)
    assert text == whole.choices[0].message.content
    assert usage == whole.usage
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt", messages=asked["messages"])
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(**asked, temperature=9)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_a_checkpoint(folder: Path, how: signal.Signals) -> None:
    server = ServerProcess(folder, "--patience", "0")

    asyncio.run(accept(server.port, 4))
    time.sleep(1.0)
    server.process.send_signal(how)  # and a second one, by who is impatient
    assert server.stop(how) == 0
    assert not any("Traceback" in line for line in server.log)
    assert load_state(folder).generation >= 1
    assert "4 answers, 4 verdicts" in "".join(server.log)
    assert not any("math.add" in line for line in server.log)


def test_a_signal_lets_nobody_new_in_and_finishes_who_is_in(folder: Path) -> None:
    server = ServerProcess(folder, "--learn-share", "0")

    def status(path: str) -> int:
        """As a load balancer asks: by a connection of its own."""
        return httpx.get(f"http://127.0.0.1:{server.port}{path}", timeout=60).status_code

    async def ask(client: Client) -> int:
        """200, or the error that came."""
        try:
            await client.ask("ada", n=8)
        except RefusedError as error:
            return error.status
        return 200

    async def work() -> list[int]:
        async with AsyncExitStack() as stack:  # all are connected before the signal comes
            clients = [await stack.enter_async_context(Client(server.port)) for _ in range(400)]
            asked = [asyncio.create_task(ask(client)) for client in clients]
            await asyncio.sleep(0.5)
            assert await asyncio.to_thread(status, "/healthz") == 200
            server.process.send_signal(signal.SIGTERM)
            while await asyncio.to_thread(status, "/healthz") == 200:
                pass
            assert await asyncio.to_thread(status, "/v1/models") == 503
            assert not all(task.done() for task in asked)
            return await asyncio.gather(*asked)

    told = asyncio.run(work())
    assert set(told) <= {200, 503}
    assert server.process.wait(60) == 0
    assert f"{told.count(200)} answers" in "".join(server.log)


@pytest.mark.parametrize("dies", ["engine", "HTTP"])
def test_what_was_acknowledged_outlives_either_process(folder: Path, dies: str) -> None:
    server = ServerProcess(folder, "--patience", "0")
    names = asyncio.run(accept(server.port, 5))
    children = psutil.Process(server.process.pid).children()
    (http,) = (child for child in children if "spawn_main" in " ".join(child.cmdline()))
    if dies == "HTTP":
        http.kill()
        assert server.process.wait(60) == 1
        assert "the process of HTTP ended" in "".join(server.log)
        assert not any("Traceback" in line for line in server.log)
    else:
        server.stop(signal.SIGKILL)
        http.wait(60)
    journal = Journal(folder)
    assert all(journal.answer(name) and journal.verdict(name, 0) for name in names)
    journal.close()
    again = ServerProcess(folder, "--patience", "0")
    assert again.stop() == 0
    assert "5 verdicts" in "".join(again.log)


def test_mistakes_are_one_line_before_a_model_loads(
    symbiont: Symbiont, folder: Path, tmp_path: Path
) -> None:
    for words, code, message in (
        ([folder, "--address", "0.0.0.0"], 2, "--address"),
        ([folder, "--keys", tmp_path / "none"], 2, f"symbiont key {tmp_path / 'none'} makes one"),
        (["steady"], 2, "no users"),
        ([folder, "seed=3"], 2, "config is fixed"),
        ([tmp_path], 1, "no run in"),
        ([folder, "--out", tmp_path / "other"], 2, "is a run already, and stays there"),
        (["habitats/town", "seed=3", "--out", folder], 2, "holds a run with another config"),
        ([folder, "--timeout", "inf"], 2, "expected finite numbers above 0"),
        ([folder, "--learn-share", "nan"], 2, "expected a number from 0 to 1"),
    ):
        said = symbiont("serve", *words)
        assert said.code == code
        assert message in said.error


def test_a_config_goes_on_in_the_folder_that_it_founded(folder: Path) -> None:
    server = ServerProcess(Path("habitats/town"), *TOWN, "--out", str(folder))
    assert server.stop() == 0
    assert f"serving {folder} at" in "".join(server.log)


STYLE = """
from dataclasses import dataclass
from symbiont_ecology.tasks.synthetic.styles import PromptStyle, prompt_styles

@prompt_styles.register("mine")
@dataclass(frozen=True)
class Mine(PromptStyle):
    def render(self, family, question):
        return f"{family.name}: {question}\\n"
"""


def test_a_run_that_was_not_there_is_founded_and_has_the_parts_of_its_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(STYLE, encoding="utf-8")
    words = "plugins=[mine.py]", "tasks.style=mine", "--out", "new"
    server = ServerProcess(Path("habitats/town"), *words)
    body = {"user": "ada", "messages": [{"role": "user", "content": QUESTION}]}
    where = f"http://127.0.0.1:{server.port}"
    answer = httpx.post(f"{where}/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == 200
    assert httpx.get(f"{where}/ecology", timeout=60).status_code == 200
    assert server.stop() == 0


def test_a_port_or_a_run_that_is_taken_is_said(
    symbiont: Symbiont, server: ServerProcess, folder: Path
) -> None:
    said = symbiont("serve", folder, "--port", server.port)
    assert said.code == 2
    assert "take another one" in said.error
    assert not (folder / JOURNAL_FILE).exists()
    said = symbiont("serve", server.folder, "--port", 0)
    assert said.code == 1
    assert "another process" in said.error


def test_a_key_opens_a_service(symbiont: Symbiont, folder: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.jsonl"
    made = symbiont("key", keys, "--user", "ada")
    openai = pytest.importorskip("openai")
    server = ServerProcess(folder, "--keys", str(keys))
    try:
        where = f"http://127.0.0.1:{server.port}/v1"
        asked = {"model": "ecology", "messages": [{"role": "user", "content": QUESTION}]}
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=where, api_key="none").chat.completions.create(**asked)
        client = openai.OpenAI(base_url=where, api_key=made.out.strip())
        assert client.chat.completions.create(**asked).choices
        with pytest.raises(openai.PermissionDeniedError):
            client.chat.completions.create(**asked, user="bob")
    finally:
        server.stop()

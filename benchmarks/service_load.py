"""A thousand simulated users against ``symbiont serve`` on the embedded host.

    python benchmarks/service_load.py --json docs/results/service_load_full.json

The users are those of a synthetic world: each has a hidden kind, asks questions of its families,
and says yes or no. The server is a process of its own. What is measured:

- throughput and latency, one request at a time and 64 at a time, learning off and on;
- latency under a load of three times what one request at a time can do;
- acceptance while the ecology learns, beside the same world lived in simulation;
- the same requests with one PEFT adapter per user: loaded, asked, taught.

With ``--people`` it is the preset ``service`` on SmolLM2 instead: one person alone, and eight at
once who judge every answer, so that the service learns meanwhile. The client shares the machine
with the server, so figures are of both.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import torch

from timing import report

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from served import Client, ServerProcess
from symbiont_ecology import Run
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted
from symbiont_ecology.base.types import Item
from symbiont_ecology.extensions.worlds.tastes import QUESTIONS, TASTES
from symbiont_ecology.model.locating import EMBEDDED_FOLDER
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import load_config
from symbiont_ecology.tasks.users import Users

USERS, KINDS, CLIENTS = 1000, 12, 64
WORLD = (
    f"tasks.users.count={USERS}",
    f"tasks.users.kinds={KINDS}",
    "tasks.users.activity=0.8",
    "tasks.users.arrivals=0",
)
PEFT_REQUESTS, ROUNDS = 40, 3
RATE = 40.0
"""Requests a second with which learning keeps up."""
MAX_TOKENS = 50
"""Of a reply to a person."""
PATIENCE = 0.5
"""Seconds that a verdict waits for others in this benchmark."""


@dataclass
class Stretch:
    """Measurements of a stretch of requests."""

    latencies: list[float] = field(default_factory=list)
    verdicts: list[bool] = field(default_factory=list)
    seconds: float = 0.0

    def figures(self) -> dict[str, float]:
        """Return requests per second, milliseconds, and the share that was accepted."""
        p50, p95, p99 = np.percentile(self.latencies, (50, 95, 99)) * 1e3
        return {
            "requests": len(self.latencies),
            "per_second": round(len(self.latencies) / self.seconds, 1),
            "p50_ms": round(float(p50), 1),
            "p95_ms": round(float(p95), 1),
            "p99_ms": round(float(p99), 1),
            "accepted": round(float(np.mean(self.verdicts)), 3) if self.verdicts else 0.0,
        }


def questions(world: Users, begin: int = 0) -> Iterator[Item]:
    """Yield what users ask, one after another, for ever."""
    generation = begin
    while True:
        yield from world.questions(generation)
        generation += 1


async def ask(client: Client, item: Item, measured: Stretch, *, judges: bool) -> None:
    """Ask as one user, and say yes or no."""
    began = time.perf_counter()
    family = {"family": item.family}
    text = item.prompt.strip()
    limit = item.reply_limit
    answer = await client.ask(item.user, text, metadata=family, max_tokens=limit)
    measured.latencies.append(time.perf_counter() - began)
    is_right = bool(item.verifier(answer["choices"][0]["message"]["content"]))
    measured.verdicts.append(is_right)
    if judges:
        await client.judge(answer["id"], accepted=is_right)


async def load(
    port: int,
    asked: Iterator[Item],
    count: int,
    clients: int,
    *,
    judges: bool,
    per_second: float = 0,
) -> Stretch:
    """Send so many requests by so many clients; with ``per_second`` they come at that rate."""
    measured = Stretch()
    numbers = iter(range(count))
    began = time.perf_counter()
    generator = np.random.default_rng(0)
    arrivals = np.cumsum(generator.exponential(1 / per_second, count)) if per_second else None

    async def work() -> None:
        async with Client(port) as client:
            for number in numbers:
                if arrivals is not None:
                    await asyncio.sleep(max(began + arrivals[number] - time.perf_counter(), 0))
                await ask(client, next(asked), measured, judges=judges)

    await asyncio.gather(*(work() for _ in range(clients)))
    measured.seconds = time.perf_counter() - began
    return measured


class Service:
    """A service on a new run of the city, and the questions of its users."""

    def __init__(self, folder: Path, config: Any, *options: str) -> None:
        Run.start(config, folder=folder).finish()
        world = mixture(config).users
        assert world is not None
        self.world, self.asked = world, questions(world)
        self._server = ServerProcess(folder, *options)

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def load(self, count: int, clients: int = CLIENTS, rate: float = 0, *, judges: bool) -> Stretch:
        """Send so many requests."""
        port = self._server.port
        asked = self.asked
        return asyncio.run(load(port, asked, count, clients, judges=judges, per_second=rate))

    def waiting_verdicts(self) -> float:
        """Return the number of verdicts that were not learned from yet."""
        with urlopen(f"http://127.0.0.1:{self._server.port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        found = [line for line in lines if line.startswith("symbiont_waiting_verdicts ")]
        return float(found[0].split()[1])


def measure(place: Path, scale: float, seed: int) -> dict[str, object]:
    """Return all figures."""
    config = load_config("habitats/city", [*WORLD, f"seed={seed}", "run.generations=0"])
    count = int(2000 * scale)
    with Service(place / "run", config, "--learn-share", "0") as service:
        alone = service.load(count // 4, 1, judges=False)
        together = service.load(count, judges=False)
        rate = 3 * len(alone.latencies) / alone.seconds
        busy = service.load(count, rate=rate, judges=False)
    return {
        **beside_peft(place, config, max(int(960 * scale), 96)),
        "one at a time": alone.figures(),
        f"{CLIENTS} clients": together.figures(),
        f"{CLIENTS} clients at three times the rate of one": busy.figures(),
        **learning_cost(place, config, count),
        **learned(place, config, int(12_000 * scale)),
    }


def of_people(folder: Path) -> dict[str, object]:
    """Measure the preset ``service``: the first token of one person, its answers, and those of
    eight people at once."""
    server = ServerProcess(Path("service"), "--out", str(folder), "host.dtype=int8")

    def measured(count: int, tokens: int, *, people: int = 1) -> dict[str, float]:
        asked = (
            Item(
                "", "chat", "", text, text, tokens, TASTES["bullets"].accepts, user=f"u{place % 8}"
            )
            for place, text in enumerate(QUESTIONS)
        )
        done = load(server.port, asked, count, people, judges=people > 1)
        return asyncio.run(done).figures()

    try:
        measured(2, MAX_TOKENS)  # warms up
        found = {"first token alone": measured(8, 1), "alone": measured(8, MAX_TOKENS)}
        return {**found, "eight at once": measured(64, MAX_TOKENS, people=8)}
    finally:
        server.stop()


def learning_cost(place: Path, config: Any, count: int) -> dict[str, object]:
    """Measure as many requests as come, each judged, with learning off and at a quarter of the
    time, by turns: the speed of a machine changes from minute to minute. The middle round counts.
    """
    rounds = [
        [saturated(place / f"{share}-{number}", config, count, share) for share in ("0", "0.25")]
        for number in range(ROUNDS)
    ]
    costs = [round(1 - on["per_second"] / off["per_second"], 3) for off, on in rounds]
    off, on = rounds[costs.index(sorted(costs)[ROUNDS // 2])]
    return {
        "with feedback, learning off": off,
        "learning at a quarter, as many as come": on,
        "what learning costs, by rounds": costs,
    }


def saturated(folder: Path, config: Any, count: int, share: str) -> dict[str, float]:
    """Measure as many requests as come, each judged, after some that do not count."""
    with Service(folder, config, "--learn-share", share, "--patience", "0") as service:
        service.load(count // 4, judges=True)
        return service.load(count, judges=True).figures()


def learned(place: Path, config: Any, count: int) -> dict[str, object]:
    """Measure tenths of a stream from which the ecology learns; and the same world, simulated."""
    options = ("--learn-share", "0.25", "--patience", str(PATIENCE))
    with Service(place / "learned", config, *options) as service:
        tenths = [service.load(count // 10, rate=RATE, judges=True).figures() for _ in range(10)]
    length = {"generations": count // service.world.config.questions}
    simulated = config.model_copy(update={"run": config.run.model_copy(update=length)})
    Run.start(simulated, folder=place / "simulated").finish()
    verdicts = [
        verdict
        for event in read_events(place / "simulated" / "events.jsonl")
        if isinstance(event, Acted) and event.purpose == "practice"
        for verdict in event.verdicts
    ]
    accepted = [round(float(np.mean(part)), 3) for part in np.array_split(verdicts, 10)]
    return {f"learning, {RATE:g} a second": tenths, "simulated acceptance": accepted}


def beside_peft(place: Path, config: Any, count: int) -> dict[str, object]:
    """Measure requests per second until everything is answered and learned: ours, and one PEFT
    adapter per user, which is loaded, asked, taught and saved."""
    with Service(place / "beside", config, "--learn-share", "0.5", "--patience", "0") as service:
        began = time.perf_counter()
        service.load(count, judges=True)
        while service.waiting_verdicts():
            time.sleep(0.05)
        ours = count / (time.perf_counter() - began)
    items = [item for _, item in zip(range(PEFT_REQUESTS), questions(service.world), strict=False)]
    peer = PeftUsers(place / "peft", config.host.rank)
    peer.serve(items[0])  # warms up
    began = time.perf_counter()
    for item in items:
        peer.serve(item)
    theirs = len(items) / (time.perf_counter() - began)
    rates = {"ours, per second": round(ours, 1), "PEFT, per second": round(theirs, 2)}
    return {"answered and learned": rates | {"ratio": round(ours / theirs, 1)}}


class PeftUsers:
    """An adapter of its own for every user, in transformers and PEFT as their manuals do it."""

    def __init__(self, folder: Path, rank: int) -> None:
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        self._folder = folder
        self._rank = rank
        self._tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER)
        model = AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER, dtype=torch.float32)
        self._config = LoraConfig(r=rank, lora_alpha=rank, target_modules="all-linear")
        self._model: Any = get_peft_model(model, self._config, adapter_name="nobody")

    def serve(self, item: Item) -> None:
        """Load the user's adapter, ask it, teach it what was right, and save it."""
        model = self._model
        name = item.user
        place = self._folder / item.user
        if (place / name).exists():
            model.load_adapter(place / name, adapter_name=name, is_trainable=True)
        else:
            model.add_adapter(name, self._config)
        model.set_adapter(name)
        batch = self._tokenizer(item.prompt, return_tensors="pt", return_token_type_ids=False)
        length = batch["input_ids"].shape[1]
        with torch.no_grad():
            ids = model.generate(
                **batch, max_new_tokens=item.reply_limit, do_sample=True, temperature=1.0
            )
        reply = self._tokenizer.decode(ids[0, length:], skip_special_tokens=True)
        if item.verifier(reply):
            parameters = [part for part in model.parameters() if part.requires_grad]
            optimizer = torch.optim.Adam(parameters, 0.01)
            state = place / "optimizer.pt"
            if state.exists():
                optimizer.load_state_dict(torch.load(state))
            labels = ids.clone()
            labels[:, :length] = -100
            model(input_ids=ids, labels=labels).loss.backward()
            optimizer.step()
            place.mkdir(parents=True, exist_ok=True)
            torch.save(optimizer.state_dict(), state)
        model.save_pretrained(place, selected_adapters=[name])
        model.set_adapter("nobody")
        model.delete_adapter(name)


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the requests")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--people", action="store_true", help="measure the preset service instead")
    options = parser.parse_args()
    gc.freeze()  # a client that searches torch for garbage would look like a slow server
    with tempfile.TemporaryDirectory() as place:
        found = (
            of_people(Path(place) / "run")
            if options.people
            else measure(Path(place), options.scale, options.seed)
        )
        report(found, options.json)


if __name__ == "__main__":
    main()

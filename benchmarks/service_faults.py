"""Losses of a service that is killed, whose disk is full, and whose clients misbehave.

    python benchmarks/service_faults.py [--times 20] [--json docs/results/service_faults.json]

Every fault happens so many times. Counted are answers and verdicts that were acknowledged and are
not there afterwards, and answers by an adapter that is not the user's own. Both must be none.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from timing import report

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from served import QUESTION, Client, RefusedError, ServerProcess
from symbiont_ecology import Run
from symbiont_ecology.extensions.serve.journal import Journal
from symbiont_ecology.run.config import load_config
from symbiont_ecology.run.open_run import JOURNAL_FILE

USERS = tuple(f"user{number}" for number in range(12))
LEARNS = ("--learn-share", "0.5", "--patience", "0.1")


@dataclass
class Told:
    """Answers and verdicts that a service acknowledged."""

    answers: dict[str, str] = field(default_factory=dict)
    """Users by answer."""
    verdicts: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Count:
    """Acknowledged answers and verdicts, and those that were lost or wrong afterwards."""

    times: int
    acknowledged: int
    lost: int
    wrong: int


def checked(folder: Path, told: Told, times: int) -> Count:
    """Compare what was acknowledged, in so many faults, with what is there."""
    journal = Journal(folder)
    answers = [(journal.answer(name), user) for name, user in told.answers.items()]
    verdicts = [(journal.verdict(name, 0), said) for name, said in told.verdicts.items()]
    journal.close()
    return Count(
        times,
        acknowledged=len(answers) + len(verdicts),
        lost=sum(kept is None for kept, _ in (*answers, *verdicts)),
        wrong=sum(kept is not None and kept.user != user for kept, user in answers)
        + sum(kept is not None and kept.is_accepted != said for kept, said in verdicts),
    )


async def bustle(port: int, told: Told, seconds: float, clients: int = 8) -> None:
    """Ask and judge as users until the time is over or the service is gone."""

    async def talk(number: int) -> None:
        try:
            async with Client(port) as client:
                for turn in range(10**6):
                    user = USERS[(number + turn) % len(USERS)]
                    answer = await client.ask(user, seed=turn)
                    told.answers[answer["id"]] = user
                    is_good = bool(turn % 3)
                    await client.judge(answer["id"], accepted=is_good, user=user)
                    told.verdicts[answer["id"]] = is_good
        except (OSError, asyncio.IncompleteReadError, RefusedError):
            return

    try:
        await asyncio.wait_for(asyncio.gather(*map(talk, range(clients))), seconds)
    except TimeoutError:
        return


def killed(folder: Path, generator: np.random.Generator) -> Told:
    """Send SIGKILL under load."""
    told = Told()
    server = ServerProcess(folder, *LEARNS)

    async def work() -> None:
        load = asyncio.create_task(bustle(server.port, told, 60))
        await asyncio.sleep(float(generator.uniform(0.2, 3.0)))
        server.process.send_signal(signal.SIGKILL)
        await load

    asyncio.run(work())
    server.process.wait()
    return told


def full(folder: Path, generator: np.random.Generator) -> Told:
    """Let no file grow beyond a little more than the journal has: as a full disk."""
    journal = folder / JOURNAL_FILE
    room = (journal.stat().st_size if journal.exists() else 0) + int(generator.integers(300, 9000))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))

    told = Told()
    server = ServerProcess(folder, "--learn-share", "0", before=limit)
    asyncio.run(bustle(server.port, told, 4))
    server.stop()
    return told


def vanished(folder: Path, generator: np.random.Generator) -> Told:
    """Send half a request, go away in the midst of a stream, or never read."""
    told = Told()
    server = ServerProcess(folder, *LEARNS)

    async def rude(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        body = json.dumps(
            {"user": "rude", "stream": True, "messages": [{"role": "user", "content": QUESTION}]}
        )
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        request = head + body if number % 3 else (head + body)[: int(generator.integers(1, 200))]
        writer.write(request.encode())
        await writer.drain()
        if number % 3 == 1:
            await reader.read(10)
        await asyncio.sleep(1.0 if number % 3 == 2 else 0.0)
        writer.close()

    async def work() -> None:
        load = asyncio.create_task(bustle(server.port, told, 4))
        await asyncio.gather(*(rude(number) for number in range(24)), return_exceptions=True)
        await load

    asyncio.run(work())
    server.stop()
    return told


def disputed(folder: Path, generator: np.random.Generator) -> Told:
    """Send verdicts twice, otherwise, late, for nothing, and for another user's answer."""
    told = Told()
    server = ServerProcess(folder, *LEARNS)

    async def work() -> None:
        async with Client(server.port) as client:
            for turn in range(6):
                answer = await client.ask("ada", seed=turn)
                told.answers[answer["id"]] = "ada"
                await client.judge(answer["id"], accepted=True, user="ada")
                told.verdicts[answer["id"]] = True
                await client.judge(answer["id"], accepted=True, user="ada")
            await asyncio.sleep(1.0)  # generations later
            for name in told.answers:
                await expect(409, client.judge(name, accepted=False, user="ada"))
                await expect(404, client.judge(name, accepted=False, user="bob"))
                await expect(404, client.judge(f"{name}x", accepted=False))

    asyncio.run(work())
    server.stop()
    return told


async def expect(status: int, call: object) -> None:
    """Make sure that a request is refused."""
    try:
        await call  # type: ignore[misc]
    except RefusedError as error:
        if error.status == status:
            return
        raise
    raise AssertionError(f"expected {status}")


FAULTS: dict[str, Callable[[Path, np.random.Generator], Told]] = {
    "SIGKILL under load": killed,
    "full disk": full,
    "slow and vanishing clients": vanished,
    "disputed verdicts": disputed,
}


def counted(times: int, place: Path, seed: int = 0) -> dict[str, Count]:
    """Make all faults, so many times each, on a run that lives through all of its kind."""
    founded = place / "founded"
    config = load_config("habitats/town", ["run.generations=0", "run.checkpoint_every=2"])
    Run.start(config, folder=founded).finish()
    counts = dict[str, Count]()
    for name, fault in FAULTS.items():
        folder = Path(shutil.copytree(founded, place / name.split()[0]))
        generator = np.random.default_rng(seed)
        total = Told()
        for number in range(times):
            told = fault(folder, generator)
            total.answers |= told.answers
            total.verdicts |= told.verdicts
            counts[name] = checked(folder, total, number + 1)
            print(f"{name}: {number + 1} of {times}, {counts[name]}", file=sys.stderr)
    return counts


def main() -> None:
    """Make all faults; fail where something was lost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        counts = counted(options.times, Path(place))
    report({name: asdict(count) for name, count in counts.items()}, options.json)
    if any(count.lost or count.wrong for count in counts.values()):
        raise SystemExit("FAIL: something was lost, or answered by the wrong one")


if __name__ == "__main__":
    main()

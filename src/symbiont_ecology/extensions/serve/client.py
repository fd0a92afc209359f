"""The engine as the process of HTTP sees it: requests go out, and listeners hear the answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from symbiont_ecology.base.errors import EcologyError
from symbiont_ecology.extensions.serve.journal import GivenVerdict
from symbiont_ecology.extensions.serve.messages import (
    AskStatus,
    Cancel,
    Channel,
    Closed,
    Done,
    Judge,
    Message,
    ServiceStatus,
    State,
    TokenWritten,
    Told,
)
from symbiont_ecology.extensions.serve.scheduler import AnswerJob
from symbiont_ecology.tasks.mixture import TaskMixture

MAX_WAITING = 1024
"""Requests that may wait; more are refused."""


class EngineClient:
    """Hands requests on through a channel. ``listen`` reads answers, in a thread of its own.

    ``folder`` is that of the run, ``tasks`` are those of its users. ``state`` comes first.
    """

    state: State

    def __init__(self, channel: Channel, folder: Path, tasks: TaskMixture) -> None:
        self.folder, self.tasks = folder, tasks
        self._channel, self._numbers = channel, count()
        self._jobs = dict[str, AnswerJob]()
        self._listeners = dict[int, Callable[[Any], None]]()

    def submit(self, job: AnswerJob) -> bool:
        """Hand over a job, unless too many wait. Its listeners hear all errors as refusals."""
        if len(self._jobs) >= MAX_WAITING:
            return False
        self._jobs[job.ask.id] = job
        self._channel.send(replace(job.ask, is_streamed=job.told is not None))
        return True

    def cancel(self, job: AnswerJob) -> None:
        """Give up a job for which nobody waits any more."""
        if job.ask.id in self._jobs:
            self._channel.send(Cancel(job.ask.id))

    def judge(
        self,
        verdict: GivenVerdict,
        user: str,
        done: Callable[[EcologyError | None], None],
        *,
        is_for_all: bool,
    ) -> None:
        """Keep a verdict. ``done`` hears once it is on the disk, or why it is not kept; the first
        verdict on a reply counts."""
        number = next(self._numbers)
        self._listeners[number] = done
        self._channel.send(Judge(number, verdict, user, is_for_all))

    def tell_status(self, told: Callable[[ServiceStatus], None], user: str = "") -> None:
        """Ask for the status of the service, and for the verdicts of a user."""
        number = next(self._numbers)
        self._listeners[number] = told
        self._channel.send(AskStatus(number, user))

    def listen(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Read messages until the other end has gone: ``begin`` hears once when requests can be
        taken, ``end`` when nobody waits any more."""
        for message in self._channel:
            is_first = not hasattr(self, "state")
            self._hear(message)
            if is_first:
                begin()
            if isinstance(message, Closed):
                end()

    def _hear(self, message: Message) -> None:
        """Pass a message on to whoever waits for it."""
        match message:
            case State():
                self.state = message
            case TokenWritten(name, choice, token):
                job = self._jobs[name]
                job.organelle, job.prompt_tokens = message.organelle, message.prompt_tokens
                job.replies[choice].append(token)
                assert job.told is not None  # only streamed answers come token by token
                job.told(choice, token)
            case Done():
                job = self._jobs.pop(message.id)
                if message.refusal is None:
                    job.organelle, job.prompt_tokens = message.organelle, message.prompt_tokens
                    job.replies = list(map(list, message.replies)) or job.replies
                job.done(message.refusal)
            case Told(number, what):
                self._listeners.pop(number)(what)

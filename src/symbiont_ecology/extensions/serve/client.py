"""The engine as the process of HTTP sees it: requests go out, and listeners hear the answers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import count
from pathlib import Path

from symbiont_ecology.base.errors import EcologyError
from symbiont_ecology.extensions.serve.journal import MAX_JUDGEABLE, GivenVerdict
from symbiont_ecology.extensions.serve.messages import (
    Answering,
    AskStatus,
    Cancel,
    Channel,
    Closed,
    Done,
    Facts,
    Judge,
    Judged,
    Message,
    ServiceStatus,
    State,
    StatusTold,
    TokenWritten,
    raised,
)
from symbiont_ecology.extensions.serve.scheduler import AnswerJob
from symbiont_ecology.tasks.mixture import TaskMixture


class EngineClient:
    """Hands requests on through a channel. ``listen`` reads answers, in a thread of its own.

    ``folder`` is that of the run, ``tasks`` are those of its users. ``names`` are the organelles
    that can be asked now; ``is_stopping`` says that nobody new is let in. ``facts`` come first.
    """

    facts: Facts

    def __init__(
        self, channel: Channel, folder: Path, tasks: TaskMixture, max_waiting: int
    ) -> None:
        self.folder, self.tasks = folder, tasks
        self.names: Collection[str] = ()
        self.is_stopping = False
        self._channel, self._max_waiting, self._numbers = channel, max_waiting, count()
        self._jobs = dict[str, AnswerJob]()
        self._verdicts = dict[int, Callable[[EcologyError | None], None]]()
        self._status = dict[int, Callable[[ServiceStatus], None]]()
        self._texts = dict[int, str]()
        self._askers, self._refused = OrderedDict[str, str](), 0

    def text_of(self, token_id: int) -> str:
        """Return the text of a token that came with a score."""
        return self._texts[token_id]

    def submit(self, job: AnswerJob) -> bool:
        """Hand over a job, unless too many wait. Its listeners hear all errors as refusals."""
        if len(self._jobs) >= self._max_waiting:
            self._refused += 1
            return False
        self._askers[job.ask.id] = job.ask.user
        if len(self._askers) > MAX_JUDGEABLE:
            self._askers.popitem(last=False)
        self._jobs[job.ask.id] = job
        self._channel.send(replace(job.ask, is_streamed=job.told is not None))
        return True

    def cancel(self, job: AnswerJob) -> None:
        """Give up a job for which nobody waits any more."""
        if job.ask.id in self._jobs:
            self._channel.send(Cancel(job.ask.id))

    def asker(self, answer_id: str) -> str:
        """Return the user of a recent answer of this process; empty if there is none."""
        return self._askers.get(answer_id, "")

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
        self._verdicts[number] = done
        self._channel.send(Judge(number, verdict, user, is_for_all))

    def tell_status(self, told: Callable[[ServiceStatus], None]) -> None:
        """Ask for the status of the service; requests refused in this process count, too."""
        number = next(self._numbers)
        self._status[number] = told
        self._channel.send(AskStatus(number))

    def listen(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Read messages until the other end has gone: ``begin`` hears once when requests can be
        taken, ``end`` when nobody waits any more."""
        has_begun = False
        for message in self._channel:
            self.hear(message)
            if isinstance(message, State) and not has_begun:
                begin()
                has_begun = True
            if isinstance(message, Closed):
                end()

    def hear(self, message: Message) -> None:
        """Pass a message on to whoever waits for it."""
        match message:
            case Facts():
                self.facts = message
            case State(names, is_stopping):
                self.names, self.is_stopping = names, is_stopping
            case TokenWritten(name, choice, token, answering):
                job = self._noted(self._jobs[name], answering)
                job.replies[choice].append(token)
                assert job.told is not None  # only streamed answers come token by token
                job.told(choice, token)
            case Done():
                self._finish(message)
            case Judged(number, refusal):
                self._verdicts.pop(number)(raised(refusal))
            case StatusTold(number, status):
                self.is_stopping = status.is_stopping
                status = replace(status, refused=status.refused + self._refused)
                self._status.pop(number)(status)

    def _finish(self, done: Done) -> None:
        job = self._jobs.pop(done.id)
        if done.answering is not None:
            self._noted(job, done.answering)
            if done.replies:
                job.replies = [list(reply) for reply in done.replies]
        job.done(raised(done.refusal))

    def _noted(self, job: AnswerJob, answering: Answering) -> AnswerJob:
        """Return the job with its author; keeps the texts of tokens."""
        job.organelle, job.prompt_tokens = answering.organelle, answering.prompt_tokens
        self._texts |= answering.texts
        return job

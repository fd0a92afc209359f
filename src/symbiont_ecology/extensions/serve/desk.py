"""Where HTTP asks a service, which lives in another process (``http_process``)."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from symbiont_ecology.errors import DataError, EcologyError, HostError
from symbiont_ecology.extensions.serve.journal import MOST_JUDGEABLE, GivenVerdict
from symbiont_ecology.extensions.serve.line import Line, read_token
from symbiont_ecology.extensions.serve.scheduler import AnswerJob, LateError
from symbiont_ecology.tasks.mixture import TaskMixture

_log = logging.getLogger(__name__)
UNABLE = "the service could not do this: ask again later, or for fewer tokens"
"""What clients are told of its own trouble, such as a full disk."""


class RequestRefusedError(EcologyError):
    """What a client is told instead of an answer: a status of HTTP, and why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def refusal(error: EcologyError) -> RequestRefusedError:
    """What the library refuses is the client's mistake. What disk, memory or another server refuses
    is ours, and may name paths: the log alone has it."""
    if isinstance(error, RequestRefusedError):
        return error
    if isinstance(error, DataError | HostError):
        return RequestRefusedError(400, str(error))
    if isinstance(error, LateError):
        return RequestRefusedError(504, str(error))
    _log.error("request failed", extra={"reason": str(error)})
    return RequestRefusedError(503, UNABLE)


@dataclass(frozen=True)
class ServiceFacts:
    """What stays as it is for as long as a service lives.

    ``temperature`` and ``stop`` are those of practice. ``is_chat`` says whether the host's chat
    template goes around prompts, ``has_texts`` whether the log has what people write.
    """

    temperature: float
    stop: tuple[str, ...]
    is_chat: bool
    has_texts: bool


@dataclass(frozen=True)
class ServiceStatus:
    """How a service stands: counts since it began, and of what is there now. ``learning_error`` may
    be words of a user."""

    is_stopping: bool
    generation: int
    verdicts: int
    waiting_verdicts: int
    left_out: int
    seconds_learning: float
    learning_error: str
    answers: int
    refused: int
    late: int
    prompt_tokens: int
    new_tokens: int
    open_requests: int
    rows: int
    organelles: int
    users: int


class Desk:
    """Hands everything on through a line. ``listen`` hears what comes, in a thread of its own, and
    tells the listeners.

    ``folder`` is that of the run, ``tasks`` are what users ask. ``names`` are the organelles that
    can be asked now; ``is_stopping`` says whether nobody new is let in. ``facts`` come first.
    """

    facts: ServiceFacts

    def __init__(self, line: Line, folder: Path, tasks: TaskMixture, most_waiting: int) -> None:
        self.folder, self.tasks = folder, tasks
        self.names: Collection[str] = ()
        self.is_stopping = False
        self._line, self._most, self._next = line, most_waiting, count()
        self._jobs, self._numbers = dict[int, AnswerJob](), dict[AnswerJob, int]()
        self._waiting = dict[int, Callable[[dict[str, Any]], None]]()
        self._texts = dict[int, str]()
        self._askers, self._refused = OrderedDict[str, str](), 0

    def text_of(self, token_id: int) -> str:
        """The text of a token that came with a score."""
        return self._texts[token_id]

    def submit(self, job: AnswerJob) -> bool:
        """Hands over a job, unless too many wait. Its listeners hear of it as ``AnswerJob`` says,
        all errors as refusals."""
        if len(self._jobs) >= self._most:
            self._refused += 1
            return False
        self._askers[job.id] = job.item.habitat
        if len(self._askers) > MOST_JUDGEABLE:
            self._askers.popitem(last=False)
        number = self._numbers[job] = next(self._next)
        self._jobs[number], job.replies = job, [[] for _ in range(job.choices)]
        self._line.send(
            "ask",
            number=number,
            id=job.id,
            user=job.item.habitat,
            family=job.item.family,
            prompt=job.item.prompt,
            limit=job.item.reply_limit,
            decoding=asdict(job.decoding),
            choices=job.choices,
            seed=job.seed,
            alternatives=job.alternatives,
            seconds=job.deadline - time.monotonic(),
            wanted=job.wanted,
            is_limited=job.is_limited,
            has_scores=job.has_scores,
            is_streamed=job.told is not None,
        )
        return True

    def cancel(self, job: AnswerJob) -> None:
        """Nobody waits for a job any more."""
        if (number := self._numbers.get(job)) is not None:
            self._line.send("cancel", number=number)

    def asker(self, answer_id: str) -> str:
        """The user of an answer that was asked for here lately, or nobody."""
        return self._askers.get(answer_id, "")

    def judge(
        self,
        verdict: GivenVerdict,
        user: str,
        done: Callable[[EcologyError | None], None],
        *,
        is_for_all: bool,
    ) -> None:
        """Keeps the verdict of a user, or of an application that judges for all of them. ``done``
        hears once it is on the disk, or why it is not kept; the first one on a reply counts."""

        def judged(answer: dict[str, Any]) -> None:
            """Nothing, or why it was not kept."""
            done(RequestRefusedError(**answer) if answer else None)

        self._ask_for(judged, "judge", verdict=asdict(verdict), user=user, is_for_all=is_for_all)

    def tell_status(self, told: Callable[[ServiceStatus], None]) -> None:
        """Says how the service stands; who was refused here counts, too."""

        def heard(answer: dict[str, Any]) -> None:
            """All of it."""
            status = ServiceStatus(**answer)
            self.is_stopping = status.is_stopping
            told(replace(status, refused=status.refused + self._refused))

        self._ask_for(heard, "status")

    def _ask_for(
        self, heard: Callable[[dict[str, Any]], None], kind: str, **message: object
    ) -> None:
        number = next(self._next)
        self._waiting[number] = heard
        self._line.send(kind, number=number, **message)

    def listen(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Tells of what comes until the other end has gone: ``begin`` hears once when requests can
        be taken, ``end`` when nobody waits any more."""
        has_begun = False
        for message in self._line:
            match message.pop("kind"):
                case "facts":
                    stop = tuple(message.pop("stop"))
                    self.facts = ServiceFacts(**message, stop=stop)
                case "state":
                    self.names, self.is_stopping = message["names"], message["is_stopping"]
                    if not has_begun:
                        begin()
                    has_begun = True
                case "token":
                    self._token(**message)
                case "done":
                    self._done(**message)
                case "judged" | "status":
                    self._waiting.pop(message.pop("number"))(message)
                case "end":
                    end()

    def _token(self, number: int, choice: int, token: list[Any], **facts: Any) -> None:
        job = self._told_of(self._jobs[number], **facts)
        job.replies[choice].append(read_token(token))
        assert job.told is not None  # only who streams has tokens one by one
        job.told(choice, job.replies[choice][-1])

    def _done(
        self,
        number: int,
        replies: list[list[Any]] | None = None,
        status: int = 0,
        message: str = "",
        **facts: Any,
    ) -> None:
        job = self._jobs.pop(number)
        del self._numbers[job]
        if status:
            job.done(RequestRefusedError(status, message))
            return
        self._told_of(job, **facts)
        if replies:
            job.replies = [list(map(read_token, reply)) for reply in replies]
        job.done(None)

    def _told_of(
        self, job: AnswerJob, organelle: str, prompt_tokens: int, texts: dict[str, str]
    ) -> AnswerJob:
        """A job with what is known of its answer."""
        job.organelle, job.prompt_tokens = organelle, prompt_tokens
        self._texts |= {int(name): text for name, text in texts.items()}
        return job

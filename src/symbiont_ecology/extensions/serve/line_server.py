"""The engine's end of the line to HTTP: what is asked there reaches a service here."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache, partial
from typing import Any

from symbiont_ecology.errors import EcologyError
from symbiont_ecology.extensions.serve.desk import (
    RequestRefusedError,
    ServiceFacts,
    ServiceStatus,
    refusal,
)
from symbiont_ecology.extensions.serve.journal import GivenVerdict
from symbiont_ecology.extensions.serve.line import Line, written_token
from symbiont_ecology.extensions.serve.living import LivingService
from symbiont_ecology.extensions.serve.replies import TokenText
from symbiont_ecology.extensions.serve.scheduler import AnswerJob
from symbiont_ecology.extensions.serve.world import typed_item
from symbiont_ecology.host.streaming import NewToken
from symbiont_ecology.types import Decoding


class LineServer:
    """Answers a line for a service. When the line ends, the service does.

    ``text_of`` says the text of a token.
    """

    def __init__(self, service: LivingService, line: Line, text_of: TokenText) -> None:
        self._service, self._line, self._text_of = service, line, cache(text_of)
        self._tasks, self._jobs = service.run.runtime.tasks, dict[int, AnswerJob]()
        self._is_ended = False
        service.changed = self._tell_state
        practice, has_texts = service.run.runtime.practice, service.limits.has_texts
        facts = ServiceFacts(practice.temperature, practice.stop, service.is_chat, has_texts)
        line.send("facts", **asdict(facts))
        self._tell_state()
        self._thread = threading.Thread(target=self._answer, name="line", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Nobody waits for an answer any more: HTTP may end. May be called several times."""
        if not self._is_ended:
            self._is_ended = True
            self._line.send("end")

    def _tell_state(self) -> None:
        """Who can be asked, and whether anybody may."""
        service = self._service
        names = sorted(service.snapshot.weights)
        self._line.send("state", names=names, is_stopping=service.is_stopping)

    def _answer(self) -> None:
        """The thread."""
        try:
            for message in self._line:
                match message.pop("kind"):
                    case "ask":
                        self._ask(**message)
                    case "cancel":
                        if job := self._jobs.get(message["number"]):
                            self._service.scheduler.cancel(job)
                    case "judge":
                        self._judge(**message)
                    case "status":
                        self._tell_status(**message)
        finally:
            for job in list(self._jobs.values()):  # who asked has gone
                self._service.scheduler.cancel(job)
            self._service.stop()

    def _tell_status(self, number: int) -> None:
        service, tally = self._service, self._service.scheduler.tally
        journal, state = service.journal, service.snapshot.turn.state
        status = ServiceStatus(
            is_stopping=service.is_stopping,
            generation=service.generation,
            verdicts=journal.verdicts,
            waiting_verdicts=journal.verdicts - journal.learned,
            left_out=service.left_out,
            seconds_learning=service.seconds_learning,
            learning_error=service.learning_error,
            **asdict(tally),
            open_requests=service.scheduler.open_jobs,
            rows=service.scheduler.rows,
            organelles=len(state.population),
            users=len(state.habitats),
        )
        self._line.send("status", number=number, **asdict(status))

    def _ask(
        self,
        number: int,
        user: str,
        family: str,
        prompt: str,
        limit: int,
        decoding: dict[str, Any],
        seconds: float,
        is_streamed: bool,
        **rest: Any,
    ) -> None:
        """Hands over a job; ``rest`` are fields of it as they are."""
        stop = tuple(decoding.pop("stop"))
        job = AnswerJob(
            item=typed_item(user, family, prompt, self._tasks, limit),
            decoding=Decoding(**decoding, stop=stop),
            deadline=time.monotonic() + seconds,
            **rest,
        )
        job.done = partial(self._done, number, job, is_streamed)
        if is_streamed:
            job.told = partial(self._told, number, job)
        self._jobs[number] = job
        if self._service.is_stopping:
            job.done(RequestRefusedError(503, "the service is stopping"))
        elif not self._service.scheduler.submit(job):
            job.done(RequestRefusedError(503, "too many requests wait"))

    def _told(self, number: int, job: AnswerJob, choice: int, token: NewToken) -> None:
        facts = self._facts(job, [token])
        self._line.send("token", number=number, choice=choice, token=written_token(token), **facts)

    def _done(
        self, number: int, job: AnswerJob, is_streamed: bool, error: EcologyError | None
    ) -> None:
        del self._jobs[number]
        if error is not None:
            refused = refusal(error)
            self._line.send("done", number=number, status=refused.status, message=refused.message)
            return
        replies = [] if is_streamed else job.replies
        facts = self._facts(job, [token for reply in replies for token in reply])
        written = [list(map(written_token, reply)) for reply in replies]
        self._line.send("done", number=number, replies=written, **facts)

    def _facts(self, job: AnswerJob, tokens: Sequence[NewToken]) -> dict[str, object]:
        """Who answers, and the texts of tokens if somebody wants them."""
        texts = {}
        if job.has_scores:
            texts = {name: self._text_of(name) for one in tokens for name in _names(one)}
        return {"organelle": job.organelle, "prompt_tokens": job.prompt_tokens, "texts": texts}

    def _judge(self, number: int, verdict: dict[str, Any], user: str, is_for_all: bool) -> None:
        """Keeps a verdict; the first one on a reply counts."""
        journal, given = self._service.journal, GivenVerdict(**verdict)
        answer = journal.answer(given.id)
        unknown = RequestRefusedError(404, f"no answer {given.id!r} of yours that can be judged")

        def tell(error: EcologyError | None) -> None:
            """What became of it."""
            refused = refusal(error) if error else None
            facts = {"status": refused.status, "message": refused.message} if refused else {}
            self._line.send("judged", number=number, **facts)

        def kept(error: EcologyError | None) -> None:
            """In the thread of the journal, which has a verdict now."""
            first = journal.verdict(given.id, given.choice)
            if error is None and first is None:  # so many came meanwhile that it is forgotten
                error = unknown
            elif error is None and first and first.is_accepted != given.is_accepted:
                error = RequestRefusedError(409, "this reply was judged before, and otherwise")
            tell(error)

        # Another user's answer is not there: nobody learns of it by asking.
        if answer is None or not (is_for_all or answer.user == user):
            tell(unknown)
        elif given.choice >= len(answer.replies):
            tell(RequestRefusedError(400, f"choice: the answer has {len(answer.replies)} replies"))
        elif journal.verdict(given.id, given.choice) is None:
            journal.append([given], kept)
        else:
            kept(None)


def _names(token: NewToken) -> tuple[int, ...]:
    return (token.token_id, *token.alternatives)

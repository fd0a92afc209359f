"""The engine's end of the channel: requests of the process of HTTP reach the service here."""

from __future__ import annotations

import threading
from functools import partial

from symbiont_ecology.base.errors import EcologyError
from symbiont_ecology.extensions.serve.journal import adds_correction
from symbiont_ecology.extensions.serve.messages import (
    Ask,
    AskStatus,
    Cancel,
    Channel,
    Closed,
    Done,
    Judge,
    Message,
    RequestRefusedError,
    ServiceStatus,
    State,
    TokenWritten,
    Told,
    refusal_of,
)
from symbiont_ecology.extensions.serve.scheduler import AnswerJob
from symbiont_ecology.extensions.serve.service import Service
from symbiont_ecology.extensions.serve.streaming import NewToken


class EngineEndpoint:
    """Answers the messages of a channel for a service. When the channel ends, the service does."""

    def __init__(self, service: Service, channel: Channel) -> None:
        self._service, self._channel = service, channel
        self._jobs = dict[str, AnswerJob]()
        service.changed, service.drained = self._tell_state, self._tell_drained
        self._tell_state()

    def listen(self) -> None:
        """Answer messages in a thread."""
        threading.Thread(target=self._answer, name="channel", daemon=True).start()

    def _answer(self) -> None:
        try:
            for message in self._channel:
                self._hear(message)
        finally:
            for job in list(self._jobs.values()):  # their clients have gone
                self._service.scheduler.cancel(job)
            self._service.stop()

    def _hear(self, message: Message) -> None:
        """Do what a message asks for."""
        match message:
            case Ask():
                self._ask(message)
            case Cancel(name):
                if job := self._jobs.get(name):
                    self._service.scheduler.cancel(job)
            case Judge():
                self._judge(message)
            case AskStatus(number, user):
                self._tell_state()
                self._channel.send(Told(number, self._status(user)))

    def _tell_state(self) -> None:
        service, practice = self._service, self._service.run.runtime.practice
        names, is_stopping = tuple(sorted(service.snapshot.weights)), service.is_stopping
        temperature, stop = practice.temperature, practice.stop
        self._channel.send(State(names, is_stopping, temperature, stop, service.is_chat))

    def _tell_drained(self) -> None:
        self._service.drained = lambda: None  # it is said once
        self._channel.send(Closed())

    def _status(self, user: str) -> ServiceStatus:
        service, journal = self._service, self._service.journal
        state = service.snapshot.context.state
        counters = {
            **service.scheduler.tally,
            "verdicts": journal.verdicts,
            "verdicts_left_out": service.left_out,
            "learning_seconds": service.seconds_learning,
        }
        gauges = {
            "open_requests": service.scheduler.open_jobs,
            "rows": service.scheduler.rows,
            "organelles": len(state.population),
            "users": len(state.users),
            "users_without_accepted": sum(not one.accepted for one in state.users.values()),
            "generation": service.generation,
            "waiting_verdicts": journal.verdicts - journal.learned,
            "is_learning": not service.learning_error,
        }
        answers = state.users[user].answers if user in state.users else ()
        verdicts = tuple((answer.is_accepted, answer.organelle_id) for answer in answers)
        return ServiceStatus(service.learning_error, counters, gauges, verdicts)

    def _ask(self, ask: Ask) -> None:
        job = self._jobs[ask.id] = AnswerJob(ask, done=partial(self._done, ask))
        if ask.is_streamed:
            job.told = partial(self._token, job)
        if self._service.is_stopping:
            job.done(RequestRefusedError(503, "the service is stopping"))
        else:
            self._service.scheduler.submit(job)

    def _token(self, job: AnswerJob, choice: int, token: NewToken) -> None:
        written = TokenWritten(job.ask.id, choice, token, job.organelle, job.prompt_tokens)
        self._channel.send(written)

    def _done(self, ask: Ask, error: EcologyError | None) -> None:
        job = self._jobs.pop(ask.id)
        if error is not None:
            self._channel.send(Done(ask.id, refusal=refusal_of(error)))
            return
        replies = () if ask.is_streamed else tuple(map(tuple, job.replies))
        self._channel.send(Done(ask.id, job.organelle, job.prompt_tokens, replies))

    def _judge(self, judge: Judge) -> None:
        """Keep a verdict; the first one on a reply counts."""
        journal, given = self._service.journal, judge.verdict
        answer = journal.answer(given.id)
        unknown = RequestRefusedError(404, f"no answer {given.id!r} of yours that can be judged")

        def tell(error: EcologyError | None) -> None:
            self._channel.send(Told(judge.number, None if error is None else refusal_of(error)))

        def kept(error: EcologyError | None) -> None:  # in the thread of the journal
            first = journal.verdict(given.id, given.choice)
            if error is None and first is None:  # so many came meanwhile that it is forgotten
                error = unknown
            elif error is None and first and first.is_accepted != given.is_accepted:
                error = RequestRefusedError(409, "this reply was judged before, and otherwise")
            tell(error)

        # Another user's answer is not there: nobody learns of it by asking.
        if answer is None or not (judge.is_for_all or answer.user == judge.user):
            tell(unknown)
        elif given.choice >= len(answer.replies):
            expected = f"choice: expected 0 to {len(answer.replies) - 1}, got {given.choice}"
            tell(RequestRefusedError(400, expected))
        elif (first := journal.verdict(given.id, given.choice)) is None or adds_correction(
            given, first
        ):
            journal.append([given], kept)
        else:
            kept(None)

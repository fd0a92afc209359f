"""A run that answers while it learns: one thread owns the host, and its time is shared.

New requests join between tokens. The service answers between generations and between pieces of a
learning step, so that learning takes at most its share of the time while anybody waits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from symbiont_ecology.base.errors import ConfigError, EcologyError, HostError, RunError
from symbiont_ecology.base.fence import blamed, foreign_place, said_of
from symbiont_ecology.base.registry import kind_of
from symbiont_ecology.base.types import Item
from symbiont_ecology.ecology.strategies import strategies
from symbiont_ecology.extensions.serve.continuous import ContinuousBatch
from symbiont_ecology.extensions.serve.journal import GenerationBegun, Journal
from symbiont_ecology.extensions.serve.limits import ServiceLimits
from symbiont_ecology.extensions.serve.scheduler import Clock, Scheduler
from symbiont_ecology.extensions.serve.streaming import AnswerBatch, BatchingEngine
from symbiont_ecology.extensions.serve.tasks import ServiceUsers
from symbiont_ecology.extensions.serve.world import ServingSnapshot, judged_items
from symbiont_ecology.model.engines import engines
from symbiont_ecology.run.budget import budget_phase
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.open_run import OpenRun, opened

if TYPE_CHECKING:
    from symbiont_ecology.model.kernel import HostKernel

_log = logging.getLogger(__name__)
MAX_BATCHES = 4
"""A generation learns from what waits, and at most from so many times what it usually has."""
IDLE_WAIT, BUSY_WAIT = 0.05, 0.002
"""Seconds of a wait for a request, and for a server that answers."""
ANSWERING_SLOTS = 64
"""Adapters that answer at a time."""
GRACE = 25.0
"""Seconds for answers in flight, and for a generation, when a service is drained."""


class UnfinishedError(RunError):
    """A generation was not done when its service had to end. The next start lives it anew."""


class Service:
    """A run in service. ``live`` is the work of its thread; it returns after ``stop``.

    ``drain`` comes first where clients have to see that nobody new is let in.
    """

    def __init__(
        self,
        run: OpenRun,
        kernel: HostKernel,
        batch: AnswerBatch,
        journal: Journal,
        limits: ServiceLimits,
        clock: Clock = time.monotonic,
    ) -> None:
        self.run, self.journal, self.limits, self._clock = run, journal, limits, clock
        self.is_chat = kernel.codec.is_chat
        """The host's chat template goes around prompts."""
        positions = kernel.shape.max_positions
        self.scheduler = Scheduler(batch, kernel.encode, journal, positions, clock)
        tasks = run.runtime.tasks
        assert tasks.users is not None  # ``opened_service`` has checked it
        self._users = tasks.users.config
        self._kernel = kernel
        self._pose(())
        self.learning_error = ""
        """The reason if learning stopped. It may hold words of users."""
        self.changed: Callable[[], None] = lambda: None
        """Called when other organelles live, and when the service begins to drain."""
        self.drained: Callable[[], None] = lambda: None
        """Called, again and again, once a drained service owes nobody an answer, or is late."""
        self.left_out = 0
        self.seconds_learning = 0.0
        self._since, self._resting_until = 0.0, 0.0
        self._drain_until: float | None = None
        self._is_stopped, self._is_said = False, False
        self._first_waiting: float | None = None
        self.snapshot = self._snapshot()
        self._catch_up()
        if limits.learn_share:
            kernel.yield_between_pieces(self._share)
        else:
            journal.stop_learning()

    @property
    def generation(self) -> int:
        """Number of the next generation."""
        return self.run.state.generation

    def drain(self) -> None:
        """Let nobody new in, and begin no generation. A signal handler may call it."""
        if self._drain_until is None:
            self._drain_until = self._clock() + GRACE

    def stop(self) -> None:
        """Drain, and end ``live`` once all requests are answered."""
        self.drain()
        self._is_stopped = True
        self.scheduler.wake()

    @property
    def is_stopping(self) -> bool:
        """True while nobody new is let in."""
        return self._drain_until is not None

    def live(self) -> None:
        """Answer, and learn from verdicts, until ``stop``; then make a checkpoint."""
        while not (self._is_stopped and not self.scheduler.open_jobs):
            self._tell_drained()
            is_busy = self.scheduler.step(self.snapshot)
            if self._is_due():
                self._learn()
            elif not is_busy:
                self.scheduler.wait(BUSY_WAIT if self.scheduler.rows else IDLE_WAIT)
        self._save()

    @property
    def _is_late(self) -> bool:
        """True once the grace of a drained service is over."""
        return self._drain_until is not None and self._clock() >= self._drain_until

    def _tell_drained(self) -> None:
        if self.is_stopping and not self._is_said:
            self._is_said = True
            self.changed()
        if self._is_late or (self.is_stopping and not self.scheduler.open_jobs):
            self.drained()

    def _is_due(self) -> bool:
        """Return True if verdicts wait to be learned from, and the time for it has come."""
        count = self.journal.verdicts - self.journal.learned
        if not count or self.learning_error or self.is_stopping or not self.limits.learn_share:
            self._first_waiting = None
            return False
        now = self._clock()
        self._first_waiting = self._first_waiting or now
        is_enough = count >= self._users.questions
        is_old = now - self._first_waiting >= self.limits.patience
        return (is_enough or is_old) and now >= self._resting_until

    def _learn(self) -> None:
        """Live one generation on the verdicts that wait. Answering goes on if it fails."""
        self._first_waiting = None
        start = self._since = self._clock()
        limit = self.journal.learned + MAX_BATCHES * self._users.questions
        count = min(self.journal.verdicts, limit)
        try:
            self.journal.write(GenerationBegun(self.generation, count))
            self._live_generation()
        except EcologyError as error:
            self._give_up(error)
            return
        seconds = self._clock() - start
        self.seconds_learning += seconds
        self._resting_until = self._clock() + self._rest_after(self._clock() - self._since)
        _log.info("generation %d was lived in %.1f s", self.generation - 1, seconds)

    def _live_generation(self) -> None:
        """Live the next generation on the verdicts of the journal; then its organelles answer.

        Raises:
            EcologyError: it failed, be it in torch or for want of memory.
        """
        try:
            with blamed(RunError):
                replies, runtime = self.journal.judged_in(self.generation), self.run.runtime
                phrases = runtime.strategy.phrases
                items = judged_items(replies, runtime.tasks, self._kernel, phrases)
                self._pose(items)
                self.run.step()
                self.snapshot = self._snapshot()
                self.changed()
        except (RuntimeError, MemoryError) as error:
            raise RunError(f"generation {self.generation} failed: {said_of(error)}") from error
        self.left_out += len(replies) - len(items)

    def _pose(self, items: tuple[Item, ...]) -> None:
        """Set the questions of the next generation."""
        runtime = self.run.runtime
        tasks = replace(runtime.tasks, users=ServiceUsers(self._users, items))
        self.run.runtime = replace(runtime, tasks=tasks)

    def _share(self) -> None:
        """Answer in the middle of a generation: one token for every row, and more of them while the
        share of answering lasts; all of them if the service is drained.

        Raises:
            UnfinishedError: the grace is over.
        """
        end = self._clock() + self._rest_after(self._clock() - self._since)
        while self.scheduler.step(self.snapshot):
            if self._clock() >= (self._drain_until or end):
                break
        self._tell_drained()
        if self._is_late:
            raise UnfinishedError(
                f"generation {self.generation} was not done {GRACE:g} s after the service was to "
                "end: the next start lives it"
            )
        self._since = self._clock()

    def _rest_after(self, seconds: float) -> float:
        """Return the seconds that belong to answering after so many of learning."""
        share = self.limits.learn_share
        return seconds * (1 - share) / share

    def _catch_up(self) -> None:
        """Live the generations again that were begun after the last checkpoint. If one fails, the
        service answers all the same."""
        numbers = [number for number in self.journal.generations if number >= self.generation]
        if numbers and numbers[0] != self.generation:
            raise RunError(
                f"{self.journal.path} begins with generation {numbers[0]}, and the run stands at "
                f"{self.generation}: bring back the checkpoint that belongs to it"
            )
        try:
            for _ in numbers:
                self._live_generation()
        except EcologyError as error:
            self._give_up(error)

    def _snapshot(self) -> ServingSnapshot:
        state, runtime = self.run.state, self.run.runtime
        turn = runtime.at(state, *budget_phase(state, runtime.milestones))
        return ServingSnapshot.of(turn)

    def _save(self) -> None:
        if not self.learning_error:
            try:
                self.run.save()
            except EcologyError as error:
                self._give_up(error)

    def _give_up(self, error: EcologyError) -> None:
        """End learning: the state may be half changed, and the last checkpoint holds."""
        self.learning_error = str(error)
        self.journal.stop_learning()
        kind = type(error.__cause__ or error).__name__
        _log.error("learning stopped: %s", error if _is_ours(error) else kind)


def _is_ours(error: EcologyError) -> bool:
    """Return True if an error is about memory, disk or time. Any other may come from a plug-in, and
    quote users."""
    cause = error.__cause__
    if any(foreign_place(fault.__traceback__) for fault in (error, cause) if fault):
        return False
    return isinstance(cause, OSError) or isinstance(error, HostError | UnfinishedError)


def check_served(config: RunConfig, name: object) -> None:
    """Refuse a run that cannot be served: it has no users, or its strategy cannot serve them.

    Raises:
        ConfigError: it cannot.
    """
    if not config.tasks.users:
        raise ConfigError(
            f"{name}: it has no users, and a service has users: choose the preset service, or "
            "set tasks.users"
        )
    if fault := strategies.build(config.strategy).service_fault:
        raise ConfigError(
            f"{name}: strategy {kind_of(config.strategy)!r} cannot be served: {fault}; found a run "
            "with another one, such as ecology"
        )


@contextmanager
def opened_service(
    config: RunConfig, folder: Path, kernel: HostKernel, limits: ServiceLimits, *, is_new: bool
) -> Iterator[Service]:
    """Open a run for service; its folder is locked meanwhile.

    The kernel learns; what answers is the engine of the config.

    Raises:
        ConfigError: it cannot be served.
        RunError: see ``run.open_run.opened``; or the journal is damaged.
        HostError: a server that is to answer is not there, or serves another model.
    """
    check_served(config, folder)
    engine = engines.build(config.host.engine)
    begin = engine.batch if isinstance(engine, BatchingEngine) else ContinuousBatch
    batch = begin(kernel, ANSWERING_SLOTS)
    with opened(config, folder, kernel, is_new=is_new, is_endless=True) as run:
        journal = Journal(folder, run.state.generation)
        try:
            yield Service(run, kernel, batch, journal, limits)
        finally:
            kernel.yield_between_pieces(lambda: None)
            journal.close()

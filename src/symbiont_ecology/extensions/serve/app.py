"""The HTTP server of a service: OpenAI's API, feedback, health, metrics, and a page for people."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException as HttpError

from symbiont_ecology.base.errors import EcologyError
from symbiont_ecology.base.types import TURN_END, Decoding
from symbiont_ecology.ecology import HOST
from symbiont_ecology.extensions.serve.client import EngineClient
from symbiont_ecology.extensions.serve.journal import GivenVerdict
from symbiont_ecology.extensions.serve.limits import (
    Access,
    ApiKeys,
    BodyLimit,
    HostLimit,
    HttpLimits,
    RateLimit,
)
from symbiont_ecology.extensions.serve.messages import Ask, refusal_of
from symbiont_ecology.extensions.serve.openai_api import (
    AnswerRequest,
    ChatRequest,
    CompletionRequest,
    FeedbackRequest,
    chat_answer,
    chat_chunk,
    chat_logprobs,
    error_body,
    now,
    text_answer,
    text_chunk,
    text_logprobs,
)
from symbiont_ecology.extensions.serve.pages import ServiceMetrics, ServicePages, TimedRequests
from symbiont_ecology.extensions.serve.scheduler import AnswerJob
from symbiont_ecology.extensions.serve.streaming import NewToken
from symbiont_ecology.extensions.serve.world import family_of, prompt_of

_log = logging.getLogger(__name__)
OWN_ADAPTER, ANYBODY = "ecology", "anonymous"
"""The model whose organelles answer their own users; the user without a name."""
ALTERNATING = "expected messages of user and assistant by turns, system first if at all, user last"
_Heard = TypeVar("_Heard")


class ServiceApp:
    """Answers requests through an engine's client; ``asgi`` is what a web server runs."""

    def __init__(self, engine: EngineClient, keys: ApiKeys | None, limits: HttpLimits) -> None:
        self._engine, self._keys, self._limits, self._text_of = engine, keys, limits, engine.text_of
        self._rate, self._metrics = RateLimit(limits.per_minute), ServiceMetrics()
        self._pages = ServicePages(engine.folder)
        self.asgi = FastAPI(title="symbiont serve", openapi_url=None)
        self._add_routes()

    def _add_routes(self) -> None:
        app = self.asgi
        app.add_middleware(BodyLimit)
        if self._keys is None:
            app.add_middleware(HostLimit)
        app.add_middleware(TimedRequests, metrics=self._metrics)
        app.exception_handler(RequestValidationError)(_invalid)
        app.exception_handler(HttpError)(_failed)
        app.exception_handler(EcologyError)(_unable)
        app.post("/v1/chat/completions")(self.chat)
        app.post("/v1/completions")(self.complete)
        app.post("/v1/feedback")(self.feedback)
        app.get("/v1/models")(self.models)
        app.get("/healthz")(self.health)
        app.get("/metrics")(self.metrics)
        app.get("/")(self._pages.chat)
        app.get("/ecology")(self._guarded(self._pages.ecology))
        app.get("/record.json")(self._guarded(self._pages.record))
        app.get("/openapi.json", include_in_schema=False)(self._description)

    async def chat(self, wanted: ChatRequest, request: Request) -> Response:
        """Answer a conversation."""
        access = self._access(request, wanted.user)
        turns = _said(wanted)
        job = self._job(wanted, turns, access)
        head = partial(chat_chunk, job, wanted.model)

        def delta(choice: int, token: NewToken | None) -> dict[str, object]:
            content = (
                {"role": "assistant", "content": ""} if token is None else {"content": token.text}
            )
            logprobs = (
                chat_logprobs([token], self._text_of) if token and job.ask.has_scores else None
            )
            return {"index": choice, "delta": content, "logprobs": logprobs, "finish_reason": None}

        def end(choice: int) -> dict[str, object]:
            reason = job.replies[choice][-1].end
            return {"index": choice, "delta": {}, "logprobs": None, "finish_reason": reason}

        if wanted.stream:
            return self._streamed(job, wanted, head, delta, end)
        await self._answered(job, request)
        return JSONResponse(chat_answer(job, wanted.model, self._text_of))

    async def complete(self, wanted: CompletionRequest, request: Request) -> Response:
        """Continue a text."""
        access = self._access(request, wanted.user)
        job = self._job(wanted, [wanted.text], access)
        head = partial(text_chunk, job, wanted.model)
        offsets = [0] * job.ask.choices  # letters of each text's tokens that were told

        def delta(choice: int, token: NewToken | None) -> dict[str, object]:
            logprobs = None
            if token and job.ask.has_scores:
                logprobs = text_logprobs([token], self._text_of, offsets[choice])
                offsets[choice] += len(self._text_of(token.token_id))
            text = token.text if token else ""
            return {"index": choice, "text": text, "logprobs": logprobs, "finish_reason": None}

        def end(choice: int) -> dict[str, object]:
            reason = job.replies[choice][-1].end
            return {"index": choice, "text": "", "logprobs": None, "finish_reason": reason}

        if wanted.stream:
            return self._streamed(job, wanted, head, delta, end)
        await self._answered(job, request)
        return JSONResponse(text_answer(job, wanted.model, self._text_of))

    async def feedback(self, said: FeedbackRequest, request: Request) -> Response:
        """Keep the verdict of a user. The first one on a reply counts."""
        access = self._access(request, said.user or self._engine.asker(said.id))
        if (said.accepted is None) == (said.score is None):
            raise HTTPException(400, "expected one of accepted and score")
        is_accepted = said.accepted if said.score is None else said.score >= 0.5
        verdict = GivenVerdict(said.id, bool(is_accepted), said.choice, said.score, said.comment)
        user, is_for_all = _user(said.user, access), access.is_application and said.user is None
        await self._kept(partial(self._engine.judge, verdict, user, is_for_all=is_for_all))
        return JSONResponse({"id": said.id, "choice": said.choice, "accepted": verdict.is_accepted})

    async def models(self, request: Request) -> Response:
        """List the models: the ecology, the bare host, and for applications each organelle."""
        access, moment = self._access(request), now()
        names = [OWN_ADAPTER, HOST]
        if access.is_application:
            names += sorted(self._engine.names)
        data = [
            {"id": name, "object": "model", "created": moment, "owned_by": "symbiont"}
            for name in names
        ]
        return JSONResponse({"object": "list", "data": data})

    async def health(self, request: Request) -> Response:
        """Return 200 while requests are taken. The reason why learning stopped may quote a user."""
        status, access = await self._heard(self._engine.tell_status), self._known(request)
        facts: dict[str, object] = {
            "status": "draining" if status.is_stopping else "ok",
            "generation": status.generation,
            "verdicts": status.verdicts,
            "learning": "stopped" if status.learning_error else "ok",
        }
        if status.learning_error and access is not None and access.is_application:
            facts["reason"] = status.learning_error
        return JSONResponse(facts, 503 if status.is_stopping else 200)

    async def metrics(self, request: Request) -> Response:
        """Return the metrics for Prometheus."""
        self._access(request)
        text = self._metrics.text(await self._heard(self._engine.tell_status))
        return Response(text, media_type="text/plain; version=0.0.4")

    async def _description(self, request: Request) -> Response:
        """Return the description of the API."""
        self._access(request)
        return JSONResponse(self.asgi.openapi())

    def _known(self, request: Request) -> Access | None:
        """Return the rights of the caller's key; all of them, if there are no keys."""
        if self._keys is None:
            return Access()
        kind, _, key = request.headers.get("authorization", "").partition(" ")
        return self._keys.access(key.strip()) if kind.lower() == "bearer" else None

    def _access(self, request: Request, user: str | None = None) -> Access:
        """Return the rights of the caller; count the request for the user that it names.

        Raises:
            HTTPException: its key is not known, it asks too often, or the service is stopping.
        """
        access = self._known(request)
        if access is None:
            raise HTTPException(401, "expected a known key: Authorization: Bearer …")
        if self._engine.is_stopping:
            raise HTTPException(503, "the service is stopping")
        name = access.user or user
        address = request.client.host if request.client else ""
        caller = f"user {name}" if name else f"address {address}"
        if (wait := self._rate.seconds_to_wait(caller)) > 0:
            headers = {"Retry-After": str(int(wait) + 1)}
            raise HTTPException(429, "too many requests: wait a little", headers)
        return access

    def _guarded(self, page: Callable[[Request], Awaitable[Response]]) -> Callable[..., object]:
        """Return a page that shows all users, for which an application's key is needed."""

        async def guarded(request: Request) -> Response:
            if not self._access(request).is_application:
                raise HTTPException(403, "expected a key of an application: it shows all users")
            return await page(request)

        return guarded

    def _job(
        self, wanted: ChatRequest | CompletionRequest, turns: list[str], access: Access
    ) -> AnswerJob:
        """Return the job of a request."""
        if any(TURN_END in text for text in turns):
            raise HTTPException(400, "expected text without control characters")
        tasks, facts = self._engine.tasks, self._engine.facts
        family = family_of(turns, (wanted.metadata or {}).get("family", ""), tasks)
        limit = min(wanted.max_new_tokens or self._limits.max_tokens, self._limits.max_tokens)
        prompt = prompt_of(turns, family, tasks, is_chat=facts.is_chat)
        kind = "chatcmpl" if isinstance(wanted, ChatRequest) else "cmpl"
        decoding = Decoding(
            facts.temperature if wanted.temperature is None else wanted.temperature,
            wanted.top_p or 1.0,
            stop=(*facts.stop, *wanted.stops),
        )
        ask = Ask(
            id=f"{kind}-{secrets.token_hex(12)}",
            user=_user(wanted.user, access),
            family=family,
            prompt=prompt,
            limit=limit,
            decoding=decoding,
            seconds=self._limits.seconds,
            choices=wanted.n or 1,
            seed=wanted.seed,
            alternatives=wanted.alternatives or 0,
            wanted=self._organelle(wanted, access),
            is_limited=wanted.max_new_tokens is not None,
            has_scores=wanted.alternatives is not None,
        )
        return AnswerJob(ask)

    def _organelle(self, wanted: AnswerRequest, access: Access) -> str | None:
        """Return the organelle that is asked by name; None for the user's own."""
        if wanted.model == OWN_ADAPTER:
            return None
        names = self._engine.names if access.is_application else ()
        if wanted.model == HOST or wanted.model in names:
            return wanted.model
        raise HTTPException(404, f"no model {wanted.model[:80]!r}: GET /v1/models names them")

    async def _answered(self, job: AnswerJob, request: Request) -> None:
        """Wait for a job that is not streamed, for as long as its client does."""

        def begin(done: Callable[[EcologyError | None], None]) -> None:
            job.done = done
            self._submit(job)

        gone = asyncio.create_task(_left(request))
        # Also where the wait ends otherwise: of a job that is done, nothing is left to cancel.
        gone.add_done_callback(lambda _: self._engine.cancel(job))
        try:
            await self._kept(begin)
        finally:
            gone.cancel()
        self._told(job)

    def _streamed(
        self,
        job: AnswerJob,
        wanted: AnswerRequest,
        head: Callable[[int, list[dict[str, object]]], dict[str, object]],
        delta: Callable[[int, NewToken | None], dict[str, object]],
        end: Callable[[int], dict[str, object]],
    ) -> Response:
        """Return an answer as server-sent events. The last one says that it is on the disk."""
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[tuple[int, NewToken] | object]()
        moment, has_usage = (
            now(),
            bool(wanted.stream_options and wanted.stream_options.include_usage),
        )
        job.told = lambda choice, token: _soon(loop, queue.put_nowait, (choice, token))
        job.done = lambda error: _soon(loop, queue.put_nowait, error or _DONE)
        self._submit(job)

        async def events() -> AsyncIterator[str]:
            try:
                for choice in range(job.ask.choices):
                    yield _event(head(moment, [delta(choice, None)]))
                while isinstance(message := await queue.get(), tuple):
                    if message[1].text or job.ask.has_scores:
                        yield _event(head(moment, [delta(*message)]))
                if isinstance(message, EcologyError):
                    refused = refusal_of(message)
                    body = error_body(refused.status, refused.message).decode()
                    yield f"data: {body}\n\n"
                    return
                yield _event(head(moment, [end(choice) for choice in range(job.ask.choices)]))
                if has_usage:
                    yield _event(head(moment, []) | {"usage": job.usage})
                yield "data: [DONE]\n\n"
                self._told(job)
            finally:
                self._engine.cancel(job)

        return StreamingResponse(events(), media_type="text/event-stream")

    def _submit(self, job: AnswerJob) -> None:
        if not self._engine.submit(job):
            raise HTTPException(503, "too many requests wait", {"Retry-After": "1"})

    async def _kept(self, begin: Callable[[Callable[[EcologyError | None], None]], None]) -> None:
        """Wait until the answer or verdict that ``begin`` begins is on the disk.

        Raises:
            EcologyError: it could not be.
        """
        if (error := await self._heard(begin)) is not None:
            raise error

    async def _heard(self, begin: Callable[[Callable[[_Heard], None]], None]) -> _Heard:
        """Wait for the message of another thread that ``begin`` asks for."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Heard] = loop.create_future()

        def finish(heard: _Heard) -> None:
            if not future.done():
                future.set_result(heard)

        begin(lambda heard: _soon(loop, finish, heard))
        return await future

    def _told(self, job: AnswerJob) -> None:
        facts: dict[str, object] = {"id": job.ask.id, "organelle": job.organelle, **job.usage}
        if self._engine.facts.has_texts:
            facts |= {"prompt": job.ask.prompt, "replies": job.texts}
        _log.info("answered", extra=facts)


_DONE = object()


def _said(wanted: ChatRequest) -> list[str]:
    """Return the turns of a conversation (``types.turns``)."""
    roles = [message.role for message in wanted.messages]
    texts = [message.text for message in wanted.messages]
    has_system = roles[0] in ("system", "developer")
    talk = roles[has_system:]
    by_turns = ["user" if place % 2 == 0 else "assistant" for place in range(len(talk))]
    if talk != by_turns or len(talk) % 2 == 0:
        raise HTTPException(400, f"messages: {ALTERNATING}")
    if not texts[-1].strip():
        raise HTTPException(400, "messages: expected a question, got an empty text")
    return texts


def _user(name: str | None, access: Access) -> str:
    """Return the user of a request."""
    if access.user is None:
        return name or ANYBODY
    if name not in (None, access.user):
        raise HTTPException(403, "user: this key is of another user")
    return access.user


async def _left(request: Request) -> None:
    """Return when the client of a request has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _soon(loop: asyncio.AbstractEventLoop, listener: Callable[..., None], message: object) -> None:
    """Call a listener in the event loop, from another thread. The loop may have ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(listener, message)


def _event(body: Mapping[str, object]) -> str:
    return f"data: {json.dumps(body)}\n\n"


async def _invalid(request: Request, error: Exception) -> Response:
    """Answer a request that does not fit the schema, without quoting it."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "body")
    message = f"{place[:80]}: {first['msg']}" if place else str(first["msg"])
    return Response(error_body(400, message), 400, media_type="application/json")


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpError)
    body = error_body(error.status_code, str(error.detail))
    return Response(body, error.status_code, error.headers, "application/json")


async def _unable(request: Request, error: Exception) -> Response:
    assert isinstance(error, EcologyError)
    refused = refusal_of(error)
    body = error_body(refused.status, refused.message)
    return Response(body, refused.status, media_type="application/json")

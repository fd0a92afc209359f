"""The HTTP server of a service: OpenAI's API, feedback, health, metrics, and a page for people."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException as HttpError
from starlette.requests import ClientDisconnect

from symbiont_ecology.base.errors import EcologyError
from symbiont_ecology.base.types import Decoding
from symbiont_ecology.ecology import HOST
from symbiont_ecology.extensions.serve.client import EngineClient
from symbiont_ecology.extensions.serve.journal import GivenVerdict
from symbiont_ecology.extensions.serve.limits import (
    Access,
    ApiKeys,
    HttpGuard,
    ServiceLimits,
    check_place,
)
from symbiont_ecology.extensions.serve.messages import Ask, RequestRefusedError, refusal_of
from symbiont_ecology.extensions.serve.openai_api import (
    MIN_TOP_P,
    ChatRequest,
    FeedbackRequest,
    LogProbabilities,
    chat_answer,
    chat_chunk,
    error_body,
    usage_chunk,
)
from symbiont_ecology.extensions.serve.pages import ServicePages, metrics_text
from symbiont_ecology.extensions.serve.scheduler import AnswerJob
from symbiont_ecology.extensions.serve.streaming import NewToken
from symbiont_ecology.extensions.serve.world import family_of, prompt_of

OWN_ADAPTER, ANYBODY = "ecology", "anonymous"
"""The model whose organelles answer their own users; the user without a name."""
_Heard = TypeVar("_Heard")


class ServiceApp:
    """Answers requests through an engine's client; ``asgi`` is what a web server runs."""

    def __init__(self, engine: EngineClient, keys: ApiKeys | None, limits: ServiceLimits) -> None:
        self._engine, self._keys, self._limits = engine, keys, limits
        self._began, pages = datetime.now(UTC), ServicePages(engine.folder)
        self.asgi = app = FastAPI(
            title="symbiont serve",
            docs_url=None,  # pages that load scripts from elsewhere
            redoc_url=None,
            dependencies=[Depends(check_place)] if keys is None else [],
            exception_handlers=dict.fromkeys((HttpError, EcologyError), _refused),
        )
        app.add_middleware(HttpGuard)
        app.post("/v1/chat/completions", openapi_extra=_described(ChatRequest))(self.chat)
        app.post("/v1/feedback", openapi_extra=_described(FeedbackRequest))(self.feedback)
        app.get("/v1/feedback")(self.verdicts)
        app.get("/v1/models")(self.models)
        app.get("/v1/models/{name}")(self.model)
        app.get("/healthz")(self.health)
        app.get("/metrics")(self.metrics)
        app.get("/")(pages.chat)
        for_all = [Depends(self._check_application)]
        app.get("/ecology", dependencies=for_all)(pages.ecology)
        app.get("/record.json", dependencies=for_all)(pages.record)

    async def chat(self, request: Request) -> Response:
        """Answer a conversation."""
        access = self._access(request)
        wanted = ChatRequest.read(await _body(request))
        job = AnswerJob(self._ask(wanted, access))
        if wanted.stream:
            return self._streamed(job, wanted)
        await self._answered(job, request)
        return JSONResponse(chat_answer(job, wanted.model))

    async def feedback(self, request: Request) -> Response:
        """Keep the verdict of a user. The first one on a reply counts."""
        access = self._access(request)
        said = FeedbackRequest.read(await _body(request))
        is_accepted = said.accepted if said.score is None else said.score >= 0.5
        about = said.choice, said.score, said.comment, said.correction
        verdict = GivenVerdict(said.id, bool(is_accepted), *about)
        user, is_for_all = _user(said.user, access), access.is_application and said.user is None
        await self._kept(partial(self._engine.judge, verdict, user, is_for_all=is_for_all))
        return JSONResponse({"id": said.id, "choice": said.choice, "accepted": verdict.is_accepted})

    async def verdicts(self, request: Request, user: str | None = None) -> Response:
        """Return the last verdicts of a user that were learned, the oldest first."""
        name = _user(user, self._access(request))
        status = await self._heard(partial(self._engine.tell_status, user=name))
        said = [{"accepted": one, "organelle": organelle} for one, organelle in status.verdicts]
        return JSONResponse({"user": name, "verdicts": said})

    async def models(self, request: Request) -> Response:
        """List the models: the ecology, the bare host, and for applications each organelle."""
        access = self._access(request)
        organelles = self._engine.state.names if access.is_application else ()
        data = list(map(self._described_model, (OWN_ADAPTER, HOST, *organelles)))
        return JSONResponse({"object": "list", "data": data})

    async def model(self, name: str, request: Request) -> Response:
        """Return one of the models."""
        self._organelle(name, self._access(request))
        return JSONResponse(self._described_model(name))

    def _described_model(self, name: str) -> dict[str, object]:
        moment = int(self._began.timestamp())
        return {"id": name, "object": "model", "created": moment, "owned_by": "symbiont"}

    async def health(self, request: Request) -> Response:
        """Return 200 while requests are taken. The reason why learning stopped may quote a user."""
        status, access = await self._heard(self._engine.tell_status), self._known(request)
        is_stopping, error = self._engine.state.is_stopping, status.learning_error
        facts: dict[str, object] = {
            "status": "draining" if is_stopping else "ok",
            "generation": status.gauges["generation"],
            "verdicts": status.counters["verdicts"],
            "learning": "stopped" if error else "ok",
        }
        if error and access is not None and access.is_application:
            facts["reason"] = error
        return JSONResponse(facts, 503 if is_stopping else 200)

    async def metrics(self, request: Request) -> Response:
        """Return the metrics for Prometheus."""
        self._access(request)
        text = metrics_text(await self._heard(self._engine.tell_status))
        return Response(text, media_type="text/plain; version=0.0.4")

    def _known(self, request: Request) -> Access | None:
        """Return the rights of the caller's key; all of them, if there are no keys."""
        if self._keys is None:
            return Access()
        kind, _, key = request.headers.get("authorization", "").partition(" ")
        return self._keys.access(key.strip()) if kind.lower() == "bearer" else None

    def _access(self, request: Request) -> Access:
        """Return the rights of the caller.

        Raises:
            HTTPException: its key is not known, or the service is stopping.
        """
        access = self._known(request)
        if access is None:
            raise HTTPException(401, "expected a known key: Authorization: Bearer …")
        if self._engine.state.is_stopping:
            raise HTTPException(503, "the service is stopping")
        return access

    async def _check_application(self, request: Request) -> None:
        """Refuse whoever may not see all users."""
        if not self._access(request).is_application:
            raise HTTPException(403, "expected a key of an application: it shows all users")

    def _ask(self, wanted: ChatRequest, access: Access) -> Ask:
        """Return the question of a request to the engine."""
        tasks, state = self._engine.tasks, self._engine.state
        family = family_of(wanted.metadata.get("family", ""), tasks)
        temperature = state.temperature if wanted.temperature is None else wanted.temperature
        return Ask(
            id=f"chatcmpl-{secrets.token_hex(12)}",
            user=_user(wanted.user, access),
            family=family,
            prompt=prompt_of(wanted.turns, family, tasks, is_chat=state.is_chat),
            limit=min(wanted.limit or self._limits.max_tokens, self._limits.max_tokens),
            decoding=Decoding(
                temperature, max(wanted.top_p, MIN_TOP_P), stop=(*state.stop, *wanted.stop)
            ),
            seconds=self._limits.seconds,
            choices=wanted.n,
            seed=wanted.seed,
            wanted=self._organelle(wanted.model, access),
            alternatives=wanted.top_logprobs if wanted.logprobs else None,
            schema=wanted.response_format,
        )

    def _organelle(self, model: str, access: Access) -> str | None:
        """Return the organelle that is asked by name; None for the user's own."""
        if model == OWN_ADAPTER:
            return None
        if model == HOST or (access.is_application and model in self._engine.state.names):
            return model
        raise HTTPException(404, f"model: expected one of GET /v1/models, got {model!a:.80}")

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

    def _streamed(self, job: AnswerJob, wanted: ChatRequest) -> Response:
        """Return an answer as server-sent events. The last one says that it is on the disk."""
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[tuple[int, NewToken] | object]()
        is_counted = wanted.stream_options.get("include_usage", False)
        chunk = partial(chat_chunk, job, wanted.model, is_counted=is_counted)
        logs = [LogProbabilities() for _ in job.replies]
        job.told = lambda choice, token: _soon(loop, queue.put_nowait, (choice, token))
        job.done = lambda error: _soon(loop, queue.put_nowait, error)
        self._submit(job)

        async def events() -> AsyncIterator[str]:
            try:
                for choice in range(job.ask.choices):
                    yield _event(chunk(choice, {"role": "assistant", "content": ""}))
                while isinstance(message := await queue.get(), tuple):
                    choice, token = message
                    entries = logs[choice].add(token)
                    if token.text or entries:
                        yield _event(chunk(choice, {"content": token.text}, entries=entries))
                if isinstance(message, EcologyError):
                    refused = refusal_of(message)
                    yield f"data: {error_body(refused.status, refused.message).decode()}\n\n"
                    return
                for choice, reply in enumerate(job.replies):
                    yield _event(chunk(choice, {}, reply[-1].end))
                if is_counted:
                    yield _event(usage_chunk(job, wanted.model))
                yield "data: [DONE]\n\n"
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


async def _body(request: Request) -> bytes:
    """Return the body of a request.

    Raises:
        RequestRefusedError: it is not sent as JSON, as no form of a strange web page is; or whoever
            sent it has gone.
    """
    try:
        body = await request.body()
    except ClientDisconnect as error:
        raise RequestRefusedError(400, "expected the whole body, got a part of it") from error
    kind = request.headers.get("content-type", "none")
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise RequestRefusedError(400, f"expected Content-Type: application/json, got {kind:.80}")
    return body


def _described(body: type[ChatRequest | FeedbackRequest]) -> dict[str, object]:
    """Return what the description of the API says of a body."""
    content = {"application/json": {"schema": body.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


def _user(name: str | None, access: Access) -> str:
    """Return the user of a request."""
    if access.user is None:
        return name or ANYBODY
    if name not in (None, access.user):
        raise HTTPException(403, f"user: expected {access.user!r}, whose key this is, got {name!r}")
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


async def _refused(request: Request, error: Exception) -> Response:
    """Answer with an error in OpenAI's form."""
    headers = None
    if isinstance(error, HttpError):
        status, message, headers = error.status_code, str(error.detail), error.headers
    else:
        assert isinstance(error, EcologyError)
        refused = refusal_of(error)
        status, message = refused.status, refused.message
    return Response(error_body(status, message), status, headers, "application/json")

"""vLLM 0.27 as its published schemas describe it, in a thread, on a real host: what it answers and
with which log-probabilities is computed. It has faults that can be switched on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from symbiont_ecology.adapters.peft_files import read_peft
from symbiont_ecology.base.types import HOST_SLOT, Completion, Decoding, Request
from symbiont_ecology.model.kernel import HostKernel

STATUS = {"full": 503, "bad": 400}


class Strict(BaseModel):
    """A schema that knows its fields and no others."""

    model_config = ConfigDict(extra="forbid")


class VllmCompletion(Strict):
    """The fields of vLLM's CompletionRequest that this project sends; others would change answers
    if they were not set."""

    model: str
    prompt: list[int]
    max_tokens: int
    min_tokens: int
    seed: int | None
    logprobs: Literal[1]
    return_token_ids: Literal[True]
    temperature: float
    top_p: float
    top_k: Literal[-1]
    min_p: float
    stop: list[str]
    stop_token_ids: list[int]
    repetition_penalty: Literal[1.0]
    presence_penalty: float
    frequency_penalty: float


class RefusalError(Exception):
    """A status and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class FakeServer:
    """A server on a port of its own; ``fault`` names what goes wrong with the next ``left`` calls
    that it can befall."""

    question = "/v1/completions"

    def __init__(self, host: str | Path = "embedded", slots: int = 12) -> None:
        self.kernel = HostKernel.from_pretrained(host, slots=slots, rank=8)
        self.key, self.fault, self.left, self.hit = "", "", 0, 0
        self.adapters: dict[str, int] = {}
        self.names: list[str] = []
        """Every name that an adapter was loaded under."""
        self.host_slot = HOST_SLOT
        """Another one makes it serve another model."""
        self.lock, self.released = threading.RLock(), threading.Event()
        handler = type("Handler", (_Handler,), {"fake": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def fail(self, fault: str, left: int = 1 << 30) -> None:
        """Switches a fault on."""
        self.fault, self.left, self.hit = fault, left, 0

    def stop(self) -> None:
        """Closes the port."""
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def befalls(self, fault: str) -> bool:
        """Whether a fault happens now."""
        with self.lock:
            if self.fault != fault or self.left <= 0:
                return False
            self.left -= 1
            self.hit += 1
            return True

    def answer(self, path: str, data: bytes) -> tuple[int, object]:
        """Status and body of the reply to a call."""
        try:
            with self.lock:
                return 200, self._route(path, data)
        except RefusalError as refusal:
            return refusal.status, {"message": str(refusal)}
        except ValidationError as error:
            return 400, {"message": str(error)}

    def _route(self, path: str, data: bytes) -> object:
        if path == "/v1/models":
            adapters = [{"id": one, "parent": "served"} for one in self.adapters]
            return {"object": "list", "data": [{"id": "served", "parent": None}, *adapters]}
        if path == "/v1/load_lora_adapter":
            return self.load(**json.loads(data))
        if path == "/v1/unload_lora_adapter":
            return {"success": bool(self.adapters.pop(json.loads(data)["lora_name"]))}
        assert path == self.question
        for fault, status in STATUS.items():
            if self.befalls(fault):
                raise RefusalError(status, f"as {fault} as can be")
        if self.befalls("odd"):
            return {"choices": [{"token_ids": "seven"}], "meta_info": {}}
        if self.befalls("restart"):
            self.adapters.clear()
        return self.ask(data)

    def load(self, lora_name: str, lora_path: str) -> object:
        """Loads an adapter into a free slot."""
        if self.befalls("closed"):
            raise RefusalError(404, "Not Found")
        assert lora_name not in self.names
        self.check_profile(json.loads((Path(lora_path) / "adapter_config.json").read_text()))
        slot = min(set(range(self.kernel.slots)) - set(self.adapters.values()))
        self.kernel.place(slot, read_peft(lora_path, self.kernel.layout))
        self.adapters[lora_name] = slot
        self.names.append(lora_name)
        return f"Success: LoRA adapter '{lora_name}' added successfully."

    def complete(
        self, adapter: str | None, prompt: list[int], limit: int, decoding: Decoding, seed: Any
    ) -> Completion:
        """What the kernel writes: by the adapter, or by the bare host if a fault wants it so."""
        if adapter is not None and adapter not in self.adapters:
            raise RefusalError(404, f"The model `{adapter}` does not exist.")
        slot = self.host_slot if adapter is None else self.adapters[adapter]
        if adapter and self.befalls("bare"):
            slot = HOST_SLOT
        draw = None if seed is None else np.random.default_rng(seed)
        text = self.kernel.codec.decode([prompt])[0]
        assert self.kernel.encode([text])[0].tolist() == prompt
        done = self.kernel.rollout([Request(text, slot, limit)], [draw], decoding)[0]
        if self.befalls("nan"):
            return replace(done, log_probabilities=np.full(len(done.token_ids), np.nan))
        if self.befalls("alien"):
            return replace(done, token_ids=tuple(1 << 20 for _ in done.token_ids))
        return done

    def check_profile(self, config: Mapping[str, Any]) -> None:
        """Refuses adapters that vLLM refuses."""
        has_extras = config["bias"] != "none" or config["modules_to_save"] or config["use_dora"]
        if has_extras or config["rank_pattern"] or config["r"] > 8:
            raise RefusalError(400, "This adapter is not supported.")

    def ask(self, data: bytes) -> object:
        body = VllmCompletion.model_validate_json(data)
        decoding = Decoding(body.temperature, body.top_p, body.min_tokens, tuple(body.stop))
        adapter = None if body.model == "served" else body.model
        done = self.complete(adapter, body.prompt, body.max_tokens, decoding, body.seed)
        scores = {"token_logprobs": done.log_probabilities.tolist()}
        return {"choices": [{"text": done.text, "logprobs": scores, "token_ids": done.token_ids}]}


class _Handler(BaseHTTPRequestHandler):
    fake: FakeServer

    def do_GET(self) -> None:
        self._reply(b"")

    def do_POST(self) -> None:
        self._reply(self.rfile.read(int(self.headers["Content-Length"])))

    def _reply(self, data: bytes) -> None:
        fake = self.fake
        if self.path == fake.question and fake.befalls("hang"):
            fake.released.wait(20)
        if self.path == fake.question and fake.befalls("vanish"):
            self.connection.close()
            return
        status, said = 401, dict[str, str]()
        if not fake.key or self.headers.get("Authorization") == f"Bearer {fake.key}":
            status, said = fake.answer(self.path, data)  # type: ignore[assignment]
        reply = said if isinstance(said, bytes) else json.dumps(said).encode()
        with suppress(OSError):  # whoever asked has gone
            self.send_response(status)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            if not (self.path == fake.question and fake.befalls("cut")):
                self.wfile.write(reply)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@contextmanager
def running(**settings: Any) -> Iterator[FakeServer]:
    """A fake server, for a while."""
    server = FakeServer(**settings)
    try:
        yield server
    finally:
        server.stop()

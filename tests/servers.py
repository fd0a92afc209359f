"""vLLM and SGLang as their published schemas describe them, in a thread, on a real host: what they
answer and with which log-probabilities is computed. Each has faults that can be switched on."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from symbiont_ecology.host.kernel import HostKernel
from symbiont_ecology.types import HOST_SLOT, Completion, Decoding, Request
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.peft_files import read_peft
from symbiont_ecology.weights.portable import GROUPS

SLOTS = 12
"""Adapters that a fake holds."""


class Strict(BaseModel):
    """A schema that knows its fields and no others."""

    model_config = ConfigDict(extra="forbid")


class Load(Strict):
    """Body of both engines' calls to load and to unload."""

    lora_name: str
    lora_path: str = ""


class VllmCompletion(Strict):
    """The fields of vLLM's CompletionRequest that this project sends."""

    model: str
    prompt: list[int] | str
    max_tokens: int = 16
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 20  # what a generation_config.json might bring
    min_p: float = 0.0
    seed: int | None = None
    stop: list[str] = []
    stop_token_ids: list[int] = []
    logprobs: int | None = None
    return_token_ids: bool = False
    repetition_penalty: float = 1.1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0


class SglangSampling(Strict):
    """The fields of SGLang's SamplingParams that this project sends."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 20
    min_p: float = 0.0
    max_new_tokens: int = 128
    min_new_tokens: int = 0
    stop: list[str] = []
    stop_token_ids: list[int] = []
    sampling_seed: int | None = None
    repetition_penalty: float = 1.1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0


class SglangGenerate(Strict):
    """The fields of SGLang's GenerateReqInput that this project sends."""

    input_ids: list[int] | None = None
    text: str | None = None
    sampling_params: SglangSampling = SglangSampling()
    return_logprob: bool = False
    logprob_start_len: int = -1
    lora_path: str | None = None


class RefusalError(Exception):
    """A status and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class FakeServer(ABC):
    """A server on a port of its own; ``fault`` names what goes wrong with the next ``left`` calls
    that it can befall."""

    prefix = ""
    question = ""

    def __init__(self, host: str | Path = "embedded", name: str = "served", slots: int = SLOTS):
        self.kernel = HostKernel.from_pretrained(host, slots=slots, rank=8)
        self.name, self.capacity, self.key = name, slots, ""
        self.adapters: dict[str, int] = {}
        self.names: list[str] = []
        """Every name that an adapter was loaded under."""
        self.asked: Counter[str] = Counter()
        self.bodies: list[Any] = []
        self.fault, self.left, self.hit = "", 0, 0
        self.host_slot = HOST_SLOT
        """Another one makes it serve another model."""
        self._lock, self._released = threading.Lock(), threading.Event()
        self._first: AdapterWeights | None = None
        handler = type("Handler", (_Handler,), {"fake": self})
        self._server = _Listener(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def fail(self, fault: str, left: int = 1 << 30) -> None:
        """Switches a fault on."""
        self.fault, self.left, self.hit = fault, left, 0

    def restart(self) -> None:
        """Comes back without adapters."""
        self.adapters.clear()

    def stop(self) -> None:
        """Closes the port."""
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    def befalls(self, *faults: str) -> bool:
        """Whether one of these faults happens now."""
        with self._lock:
            if self.fault not in faults or self.left <= 0:
                return False
            self.left -= 1
            self.hit += 1
            return True

    def answer(self, path: str, data: bytes) -> tuple[int, bytes]:
        """Status and body of the reply to a call."""
        self.asked[path] += 1
        try:
            reply = self._route(path, data)
        except RefusalError as refusal:
            return refusal.status, self.error(refusal.status, str(refusal))
        except ValidationError as error:
            return 400, self.error(400, str(error))
        return 200, reply if isinstance(reply, bytes) else json.dumps(reply).encode()

    def _route(self, path: str, data: bytes) -> object:
        if path == "/v1/models":
            return self.models()
        if path == f"{self.prefix}/load_lora_adapter":
            return self.load(Load.model_validate_json(data))
        if path == f"{self.prefix}/unload_lora_adapter":
            return self.unload(Load.model_validate_json(data))
        if path != self.question:
            raise RefusalError(404, "Not Found")
        self.bodies.append(json.loads(data))
        for fault, status in (("full", 503), ("many", 429), ("bad", 400), ("broken", 500)):
            if self.befalls(fault):
                raise RefusalError(status, f"as {fault} as can be")
        if self.befalls("garbage"):
            return b"<html>502 Bad Gateway</html>"
        if self.befalls("odd"):
            return {"choices": [{"token_ids": "seven"}], "meta_info": {}}
        if self.befalls("hang"):
            self._released.wait(20)
        if self.befalls("restart"):
            self.restart()
        return self.ask(data)

    def load(self, body: Load) -> object:
        """Loads an adapter into a free slot."""
        if self.befalls("closed"):
            raise RefusalError(404, "Not Found")
        with self._lock:
            if body.lora_name in self.names:
                raise RefusalError(400, f"The name {body.lora_name} was used before.")
            if len(self.adapters) >= self.capacity:
                raise RefusalError(400, "No free slot for another adapter.")
            self.check_profile(
                json.loads((Path(body.lora_path) / "adapter_config.json").read_text())
            )
            slot = min(set(range(self.kernel.slots)) - set(self.adapters.values()))
            weights = read_peft(body.lora_path, self.kernel.layout)
            self._first = self._first or weights
        is_stale = self.befalls("stale")
        with self._lock:
            self.kernel.place(slot, self._first if is_stale else weights)
            self.adapters[body.lora_name] = slot
            self.names.append(body.lora_name)
        return self.loaded(body.lora_name)

    def unload(self, body: Load) -> object:
        """Forgets an adapter."""
        with self._lock:
            if self.adapters.pop(body.lora_name, None) is None:
                raise RefusalError(
                    400 if self.prefix == "" else 404, f"no adapter {body.lora_name}"
                )
        return self.loaded(body.lora_name)

    def complete(
        self,
        prompt: list[int],
        adapter: str | None,
        limit: int,
        decoding: Decoding,
        seed: int | None,
    ) -> Completion:
        """What the kernel writes: by the adapter, or by the bare host if a fault wants it so."""
        slot = self.host_slot if adapter is None else self.adapters[adapter]
        if adapter and self.befalls("bare"):
            slot = HOST_SLOT
        if adapter and self.fault == "replica":
            self.hit += 1
            slot = HOST_SLOT if self.hit % 3 == 0 else slot
        draw = None if seed is None else np.random.default_rng(seed)
        text = self.kernel.codec.decode([prompt])[0]
        with self._lock:
            assert self.kernel.encode([text])[0].tolist() == prompt
            done = self.kernel.rollout([Request(text, slot, limit)], [draw], decoding)[0]
        if self.befalls("nan"):
            return replace(done, log_probabilities=np.full(len(done.token_ids), np.nan))
        if self.befalls("alien"):
            return replace(done, token_ids=tuple(1 << 20 for _ in done.token_ids))
        if self.befalls("short"):
            scores = done.log_probabilities[:-1]
            return replace(done, token_ids=done.token_ids[:-1], log_probabilities=scores)
        return done

    @abstractmethod
    def check_profile(self, config: Mapping[str, Any]) -> None:
        """Refuses adapters that the real one refuses or misreads."""

    @abstractmethod
    def models(self) -> object:
        """What ``/v1/models`` says."""

    @abstractmethod
    def loaded(self, name: str) -> object:
        """The reply to loading and unloading."""

    @abstractmethod
    def ask(self, data: bytes) -> object:
        """The reply to a question."""

    @abstractmethod
    def error(self, status: int, message: str) -> bytes:
        """The body of a refusal."""


class FakeVllm(FakeServer):
    """As vLLM 0.27 is."""

    prefix, question = "/v1", "/v1/completions"

    def check_profile(self, config: Mapping[str, Any]) -> None:
        """As PEFTHelper and its checks."""
        has_extras = config["bias"] != "none" or config["modules_to_save"] or config["use_dora"]
        if has_extras or config["rank_pattern"] or config["r"] > 8:
            raise RefusalError(400, "This adapter is not supported.")

    def models(self) -> object:
        """Host and adapters."""
        cards = [{"id": self.name, "object": "model", "parent": None}]
        cards += [{"id": one, "object": "model", "parent": self.name} for one in self.adapters]
        return {"object": "list", "data": cards}

    def loaded(self, name: str) -> object:
        """Plain text."""
        return f"Success: LoRA adapter '{name}' added successfully.".encode()

    def ask(self, data: bytes) -> object:
        """A completion with token ids."""
        body = VllmCompletion.model_validate_json(data)
        if body.model != self.name and body.model not in self.adapters:
            raise RefusalError(404, f"The model `{body.model}` does not exist.")
        assert (body.top_k, body.repetition_penalty) == (-1, 1.0)
        assert isinstance(body.prompt, list)
        decoding = Decoding(body.temperature, body.top_p, body.min_tokens, tuple(body.stop))
        adapter = None if body.model == self.name else body.model
        done = self.complete(body.prompt, adapter, body.max_tokens, decoding, body.seed)
        scores = done.log_probabilities.tolist()
        tokens = [f"token_id:{token}" for token in done.token_ids]
        tops = [dict([pair]) for pair in zip(tokens, scores, strict=True)]
        choice = {
            "index": 0,
            "text": done.text,
            "finish_reason": "length" if len(tokens) == body.max_tokens else "stop",
            "logprobs": {"token_logprobs": scores, "tokens": tokens, "top_logprobs": tops},
            "token_ids": list(done.token_ids) if body.return_token_ids else None,
            "prompt_token_ids": body.prompt if body.return_token_ids else None,
        }
        return {
            "id": "cmpl-1",
            "object": "text_completion",
            "model": body.model,
            "choices": [choice],
        }

    def error(self, status: int, message: str) -> bytes:
        """Nested."""
        said = {"message": message, "type": "BadRequestError", "param": None, "code": status}
        return json.dumps({"error": said}).encode()


class FakeSglang(FakeServer):
    """As SGLang 0.5.18 is: its log-probabilities are those that it sampled from."""

    question = "/generate"

    def check_profile(self, config: Mapping[str, Any]) -> None:
        """As its loader: alpha ÷ r alone, bare endings, whole groups."""
        targets = config["target_modules"]
        is_partial = any(set(group) & set(targets) not in (set(), set(group)) for group in GROUPS)
        if config["use_rslora"] or config["rank_pattern"] or config["alpha_pattern"]:
            raise RefusalError(400, "This adapter would be misread.")
        if is_partial or any("." in target for target in targets):
            raise RefusalError(400, "NotImplementedError: get_hidden_dim")

    def models(self) -> object:
        """Host and adapters, as since October 2025."""
        cards = [{"id": self.name, "object": "model", "root": self.name, "parent": None}]
        cards += [{"id": one, "root": one, "parent": self.name} for one in self.adapters]
        return {"object": "list", "data": cards}

    def loaded(self, name: str) -> object:
        """JSON."""
        return {"success": True, "error_message": "", "loaded_adapters": list(self.adapters)}

    def ask(self, data: bytes) -> object:
        """A native answer."""
        body = SglangGenerate.model_validate_json(data)
        if body.lora_path is not None and body.lora_path not in self.adapters:
            raise RefusalError(
                400, f"The following requested LoRA adapters are not loaded: {body.lora_path}"
            )
        sampling, prompt = body.sampling_params, body.input_ids
        assert (sampling.top_k, sampling.repetition_penalty) == (-1, 1.0)
        assert prompt is not None
        decoding = Decoding(
            sampling.temperature, sampling.top_p, sampling.min_new_tokens, tuple(sampling.stop)
        )
        limit, seed = sampling.max_new_tokens, sampling.sampling_seed
        done = self.complete(prompt, body.lora_path, limit, decoding, seed)
        scores = done.log_probabilities
        if sampling.temperature not in (0.0, 1.0):  # of the altered distribution
            scores = scores / sampling.temperature - 0.3
        pairs = zip(scores.tolist(), done.token_ids, strict=True)
        meta = {
            "id": "1",
            "finish_reason": {"type": "stop", "matched": 2},
            "prompt_tokens": len(prompt),
            "completion_tokens": len(done.token_ids),
            "output_token_logprobs": [[score, token, None] for score, token in pairs],
        }
        return {"text": done.text, "output_ids": list(done.token_ids), "meta_info": meta}

    def error(self, status: int, message: str) -> bytes:
        """Nested, or flat where adapters are loaded."""
        return json.dumps({"success": False, "error_message": message}).encode()


FAKES: Mapping[str, type[FakeServer]] = {"vllm": FakeVllm, "sglang": FakeSglang}
"""A fake for every engine but the kernel."""


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    fake: FakeServer

    def do_GET(self) -> None:
        self._reply(b"")

    def do_POST(self) -> None:
        self._reply(self.rfile.read(int(self.headers["Content-Length"])))

    def _reply(self, data: bytes) -> None:
        fake = self.fake
        if fake.key and self.headers.get("Authorization") != f"Bearer {fake.key}":
            status, reply = 401, b'{"error": "Unauthorized"}'
        elif self.path == fake.question and fake.befalls("vanish"):
            self.connection.close()
            return
        else:
            status, reply = fake.answer(self.path, data)
        is_slow, is_cut = False, False
        if self.path == fake.question:
            is_slow, is_cut = fake.befalls("drip"), fake.befalls("cut")
        self.send_response(status)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        try:
            if is_slow:
                for place in range(len(reply)):
                    self.wfile.write(reply[place : place + 1])
                    if fake._released.wait(0.1):
                        return
            else:
                self.wfile.write(reply[: len(reply) // 2] if is_cut else reply)
        except OSError:  # whoever asked has gone
            return

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@contextmanager
def running(kind: str, **settings: Any) -> Iterator[FakeServer]:
    """A fake server of that kind, for a while."""
    server = FAKES[kind](**settings)
    try:
        yield server
    finally:
        server.stop()

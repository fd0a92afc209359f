"""``symbiont serve`` in a process of its own, and a client that is just enough HTTP/1.1: in
benchmarks both share two cores."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

QUESTION = "math.add: 47+8"


class ServerProcess:
    """``symbiont serve`` of ``folder`` on a free port; ``log`` are its lines on stderr."""

    def __init__(
        self, folder: Path, *options: str, before: Callable[[], None] | None = None
    ) -> None:
        words = ["serve", str(folder), "--port", "0", *options]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "symbiont_ecology", *words],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            preexec_fn=before,
        )
        self.folder, self.log = folder, list[str]()
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if line.startswith("serving"):
                self.port = int(line.split("127.0.0.1:")[1].split(";")[0])
            elif line.startswith("try: "):  # the last line before it serves
                break
        else:
            raise RuntimeError("".join(self.log))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """A full pipe would stop the service."""
        assert self.process.stderr is not None
        self.log.extend(self.process.stderr)

    def stop(self, how: signal.Signals = signal.SIGINT) -> int:
        """Ends it by a signal; its exit code."""
        self.process.send_signal(how)
        code = self.process.wait(120)
        self._reader.join(10)
        return code


class RefusedError(Exception):
    """The service answered with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:200]}")
        self.status = status


class Client:
    """A connection that is kept open."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Client:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def post(self, path: str, body: object) -> dict[str, Any]:
        """The answer as JSON.

        Raises:
            RefusedError: it is an error.
        """
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        self._writer.write(head.encode() + data)
        await self._writer.drain()
        answer = await self._reader.readuntil(b"\r\n\r\n")
        lines = answer.lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if b"content-length" in line)
        text = await self._reader.readexactly(length)
        status = int(lines[0].split()[1])
        if status != 200:
            raise RefusedError(status, text.decode())
        found: dict[str, Any] = json.loads(text)
        return found

    async def ask(self, user: str, text: str = QUESTION, **more: object) -> dict[str, Any]:
        """A chat completion."""
        body = {"user": user, "messages": [{"role": "user", "content": text}], **more}
        return await self.post("/v1/chat/completions", body)

    async def judge(self, name: str, *, accepted: bool, **more: object) -> dict[str, Any]:
        """Feedback."""
        return await self.post("/v1/feedback", {"id": name, "accepted": accepted, **more})

"""What all servers have in common: where they are, what they are asked, what is read of a reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, PositiveFloat

from symbiont_ecology.errors import ConfigError, HostError
from symbiont_ecology.host.engines.endpoint import Endpoint
from symbiont_ecology.registry import Share
from symbiont_ecology.types import Decoding

if TYPE_CHECKING:
    from symbiont_ecology.host.engines.client import ServerClient
    from symbiont_ecology.host.engines.forwarded import ForwardedBatch
    from symbiont_ecology.host.engines.served import ServedHost
    from symbiont_ecology.host.kernel import HostKernel

MOST_TOGETHER = 32
"""Adapters of one batch that an exported command line asks a server for."""


@dataclass(frozen=True)
class Asked:
    """One question as a server is asked it: token ids, so that nobody else's tokenizer has a
    say."""

    prompt: Sequence[int]
    limit: int  # new tokens, >= 0
    decoding: Decoding
    ends: tuple[int, ...]  # token ids that end an answer
    seed: int | None  # None answers greedily

    @property
    def temperature(self) -> float:
        """0 is greedy."""
        return 0.0 if self.seed is None else self.decoding.temperature


@dataclass(frozen=True)
class Answered:
    """What a server wrote: token ids and their log-probabilities in nats, as it reports them."""

    ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]


class Listed(BaseModel):
    """What a server says it serves (``/v1/models``)."""

    class Model(BaseModel):
        """A host, or an adapter on one."""

        id: str
        parent: str | None = None  # an adapter's host

    data: list[Model]

    @property
    def hosts(self) -> list[str]:
        """The names of those that are no adapters."""
        return [model.id for model in self.data if model.parent is None]


@dataclass(frozen=True, kw_only=True)
class AnsweringServer(ABC):
    """A server that answers while the kernel learns.

    An adapter that answers is written into ``adapters_folder``, which the server can read, and
    loaded under a name that is never used again. A server beyond this machine needs a key.
    """

    adapters_folder: str  # where adapters are written for the server, which reads them there
    url: str = "http://127.0.0.1:8000"  # of the server
    served_model: str | None = None  # the host's name there; None is the only one it has
    api_key_file: str | None = None  # file that holds the server's key
    loaded: Annotated[int, Field(ge=1)] = 64  # adapters that the server holds, host.slots or more
    connections: Annotated[int, Field(ge=1)] = 32  # questions on their way at a time
    timeout: PositiveFloat = 120.0  # seconds for one answer
    patience: PositiveFloat = 60.0  # seconds to wait for a server that is full, busy or away
    checked: Share = 1.0  # part of the answers whose log-probabilities the kernel compares
    tolerance: PositiveFloat = 0.1  # nats per token by which server and kernel may differ

    adapters_path: ClassVar[str] = ""
    """What stands in front of ``/load_lora_adapter``."""
    load_advice: ClassVar[str] = ""
    """What to do when a server loads no adapter at all."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError(f"url: expected such as http://127.0.0.1:8000, got {self.url!r}")
        if not is_loopback(parts.hostname) and self.api_key_file is None:
            raise ValueError(
                f"url: {parts.hostname} is beyond this machine, so expected api_key_file, got none"
            )

    @abstractmethod
    def body(self, asked: Asked, model: str, adapter: str | None) -> tuple[str, dict[str, object]]:
        """Path and body of a question to an adapter, or to the bare host."""

    @abstractmethod
    def ask(self, endpoint: Endpoint, asked: Asked, model: str, adapter: str | None) -> Answered:
        """The answer to a question."""

    @abstractmethod
    def reports_own(self, decoding: Decoding) -> bool:
        """Whether it reports the model's own log-probabilities under this decoding, and not those
        of what is left after temperature and truncation."""

    @classmethod
    @abstractmethod
    def start(
        cls, model: str, adapters: Mapping[str, Path], rank: int, endings: Sequence[str]
    ) -> list[str]:
        """The words that start a server with adapters: ``adapters`` are folders by name, ``rank``
        is their largest, ``endings`` are those of the adapted modules."""

    @classmethod
    @abstractmethod
    def example(cls, adapter: str, prompt: str, limit: int) -> tuple[str, dict[str, object]]:
        """Path and body of a first question to such a server."""

    def check(self, slots: int) -> None:
        """Whether it can answer for so many slots.

        Raises:
            ConfigError: it cannot.
        """
        if self.loaded < slots:
            raise ConfigError(
                f"host.engine.loaded: expected host.slots={slots} or more, got {self.loaded}: "
                "raise it, and the server's limit with it, or lower host.slots"
            )

    def reach(self) -> None:
        """Whether the server is there and says that it serves something."""
        self.find_model(self.endpoint())

    def host(self, load: Callable[[], HostKernel]) -> ServedHost:
        """The kernel, once the server is known to serve something."""
        from symbiont_ecology.host.engines.served import ServedHost

        return ServedHost(self.client(load))

    def batch(self, kernel: HostKernel, slots: int) -> ForwardedBatch:
        """Rows that the server writes."""
        from symbiont_ecology.host.engines.forwarded import ForwardedBatch

        slots = min(slots, self.loaded)
        return ForwardedBatch(self.client(lambda: kernel.beside(slots)), slots)

    def client(self, load: Callable[[], HostKernel]) -> ServerClient:
        """Asks the server what the kernel would be asked, which is loaded once the server is
        found."""
        from symbiont_ecology.host.engines.client import ServerClient

        endpoint = self.endpoint()
        model = self.find_model(endpoint)
        return ServerClient(load(), self, endpoint, model)

    def endpoint(self) -> Endpoint:
        """How the server is called.

        Raises:
            ConfigError: the file of the key cannot be read, or is empty.
        """
        return Endpoint(self.url.rstrip("/"), self.timeout, self.patience, self._key())

    def find_model(self, endpoint: Endpoint) -> str:
        """The name of the host on the server.

        Raises:
            HostError: there is none of that name, or several to choose from.
        """
        hosts = endpoint.ask(Listed, "/v1/models").hosts
        model = self.served_model or (hosts[0] if len(hosts) == 1 else None)
        if model not in hosts:
            raise HostError(
                f"expected {self.url} to serve {self.served_model or 'one model'}, got "
                f"{', '.join(hosts) or 'none'}: set host.engine.served_model, or start it with "
                "another model"
            )
        return model

    def _key(self) -> str | None:
        if self.api_key_file is None:
            return None
        try:
            key = Path(self.api_key_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"host.engine.api_key_file: {self.api_key_file} cannot be read ({error})"
            ) from error
        if not key.isprintable() or not key.isascii() or not key:
            raise ConfigError(
                f"host.engine.api_key_file: expected one line of ASCII in {self.api_key_file}"
            )
        return key


def is_loopback(hostname: str) -> bool:
    """Whether a name means this machine."""
    try:
        return ip_address(hostname).is_loopback
    except ValueError:
        return hostname == "localhost"

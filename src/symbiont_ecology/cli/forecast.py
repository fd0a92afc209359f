"""What ``run --dry-run`` and ``doctor --host`` say of memory, hours and money before they are
spent."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from symbiont_ecology.cli.console import tell_facts
from symbiont_ecology.cli.options import option
from symbiont_ecology.errors import ConfigError, HostError

if TYPE_CHECKING:
    from symbiont_ecology.config import HostConfig, RunConfig
    from symbiont_ecology.engine.forecast import MeasuredPace
    from symbiont_ecology.host.architectures import ModelConfig
    from symbiont_ecology.host.kernel import HostKernel
    from symbiont_ecology.host.memory import MemoryForecast, MemoryLoad

PriceOption = Annotated[
    float | None, option("Price of this machine for an hour, to tell money.", "--price-per-hour")
]


@dataclass(frozen=True)
class MemoryVerdict:
    """A forecast of memory beside what is here, in bytes; ``device`` is that of a GPU that is here,
    as RAM: total and free. ``mend`` is the knob to turn, empty where everything fits."""

    forecast: MemoryForecast
    ram: tuple[int, int]
    device: tuple[int, int] | None
    mend: str

    def as_json(self) -> dict[str, object]:
        """Plain values."""
        need = self.forecast
        sizes = {**asdict(need), "device": need.device, "ram": need.ram}
        del sizes["is_cpu"]
        machine = {"ram": self.ram[0], "ram_free": self.ram[1]}
        if self.device:
            machine |= {"device": self.device[0], "device_free": self.device[1]}
        return {"bytes": sizes, "here": machine, "fits": not self.mend, "mend": self.mend}


@dataclass(frozen=True)
class HostWork:
    """What ``doctor`` supposes of a population: ``rows`` prompts of each of its organelles at a
    time, and ``rollouts`` with their lessons in all."""

    organelles: int
    rows: int
    prompt_tokens: int
    new_tokens: int
    rollouts: int


def check_price(price: float | None, rate: float | None = None) -> None:
    """Refuses a price below 0, and a rate that does nothing.

    Raises:
        ConfigError: one of them is no such number.
    """
    if price is not None and not 0 <= price < math.inf:
        raise ConfigError(f"--price-per-hour: expected 0 or more, got {price}")
    if rate is not None and not 0 < rate < math.inf:
        raise ConfigError(f"--tflops: expected a rate above 0, got {rate}")


def judge_memory(
    model: ModelConfig, host: HostConfig, load: MemoryLoad, *, is_loaded: bool
) -> MemoryVerdict:
    """Whether it fits this machine, and what to do if it does not. ``is_loaded`` says that this
    process holds the host already.

    Raises:
        HostError: the host cannot be held so.
    """
    from symbiont_ecology.host.memory import device_memory, forecast_memory, what_fits
    from symbiont_ecology.process import machine_memory

    ram, device = machine_memory(), device_memory(host.device)
    need = forecast_memory(model, host, load)
    program = program_bytes(need.weights + need.slots if is_loaded and need.is_cpu else 0)

    def fits(changed: HostConfig) -> bool:
        """Whether it would, with another knob."""
        need = forecast_memory(model, changed, load, program=program)
        return need.ram <= ram[0] and (device is None or need.device <= device[0])

    need = forecast_memory(model, host, load, program=program)
    return MemoryVerdict(need, ram, device, "" if fits(host) else what_fits(host, fits))


def memory_facts(verdict: MemoryVerdict, host: HostConfig, load: MemoryLoad) -> dict[str, str]:
    """Lines about memory, by label."""
    need, ram = verdict.forecast, f"{_gigabytes(verdict.ram[0])} of RAM"
    slots = f"{host.slots} slots {_megabytes(need.slots)}"
    if not need.slots:
        slots = "slots 0 MB (adapters are read where they lie)"
    learning = "nothing is learned by steps"
    if load.learns:
        step = need.activations + need.gradients + need.updates
        learning = (
            f"{need.lesson_tokens} tokens at a time, activations {_megabytes(need.activations)}, "
            f"gradients and new states {_megabytes(step - need.activations)}"
        )
    in_all = _there(need.ram, verdict.ram[1], ram)
    if not need.is_cpu:
        on_device = f"{_gigabytes(need.device)} on {host.device}, which is not here"
        if verdict.device:
            capacity = f"{_gigabytes(verdict.device[0])} on {host.device}"
            on_device = _there(need.device, verdict.device[1], capacity)
        in_all = f"{on_device}; {in_all}"
    mend = f"does not fit: try {verdict.mend}" if verdict.mend else "fits"
    return {
        "memory": f"host {_megabytes(need.weights)} in {host.dtype}, {slots}, kept beginnings of "
        f"prompts {_megabytes(need.kept)}, program {_megabytes(need.program)}",
        "population": f"{load.organelles} adapters of rank {host.rank} "
        f"{_megabytes(need.adapters)}, optimizer {_megabytes(need.optimizer)}; a checkpoint "
        f"{_megabytes(need.blobs)} on disk, twice that while it is written",
        "answers": f"{load.rows} rows of at most {load.longest} tokens, {need.rows} at a time "
        f"{_megabytes(need.batch)}; keys and values {need.cache_token:,} bytes a token, "
        f"{_megabytes(need.cache_row)} a row",
        "lessons": learning,
        "in all": f"{in_all}: {mend}",
    }


def _there(needed: int, free: int, capacity: str) -> str:
    short = f", of which {_gigabytes(free)} are free now" if needed > free else ""
    return f"{_gigabytes(needed)} of {capacity}{short}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB" if size >= 1e7 or not size else f"{size / 1e6:.2g} MB"


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def pace_fact(pace: MeasuredPace) -> str:
    """How fast answers and lessons are, in one line."""
    lessons = f" and {1 / pace.lesson:.3g} lessons" if pace.lesson else ""
    return f"{1 / pace.rollout:.3g} rollouts{lessons} a second here, {pace.rows} at a time"


def _duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _money(seconds: float, price: float) -> str:
    return f"{seconds / 3600 * price:.3g} at {price:g} per hour"


def program_bytes(weights: int) -> int:
    """What this process takes beside weights that it holds."""
    from symbiont_ecology.process import memory_mb, release_memory

    release_memory()
    return max(int(memory_mb("VmRSS") * 2**20) - weights, 0)


def tell_host(
    settings: HostConfig,
    kernel: HostKernel | None,
    work: HostWork,
    *,
    tflops: float | None,
    price: float | None,
) -> dict[str, object]:
    """Prints memory, speed and money of a host and a population, and gives them as plain values.
    Without the ``kernel`` nothing is timed."""
    from symbiont_ecology.host.decoder import layout_of
    from symbiont_ecology.host.loading import find_dtype, read_config_file
    from symbiont_ecology.host.locating import config_file
    from symbiont_ecology.host.memory import MemoryLoad
    from symbiont_ecology.host.outline import outline_of

    model = read_config_file(config_file(settings.model, may_fetch=False))
    load = MemoryLoad(
        work.organelles, work.organelles * work.rows, work.prompt_tokens, work.new_tokens
    )
    outline = outline_of(model, find_dtype(settings.dtype))
    verdict = judge_memory(model, settings, load, is_loaded=kernel is not None)
    shape, size = outline.shape, layout_of(outline, settings.targets).size(settings.rank)
    rollout = shape.rollout_flops(size, work.prompt_tokens, work.new_tokens)
    lesson = shape.learning_flops(size, work.prompt_tokens, work.new_tokens)
    facts = memory_facts(verdict, settings, load)
    facts["work"] = (
        f"{shape.parameters:,} parameters; a rollout {rollout:.3g} FLOPs, its lesson {lesson:.3g}, "
        f"with prompts of {work.prompt_tokens} tokens and answers of {work.new_tokens}"
    )
    pace, seconds = None, dict[str, float]()
    if kernel is not None:
        print("timing for some seconds …", file=sys.stderr, flush=True)
        pace = _pace(kernel, work, settings.rank)
        facts["pace"] = pace_fact(pace)
        seconds["here"] = work.rollouts * (pace.rollout + pace.lesson)
    if tflops is not None:
        seconds[f"at {tflops:g} TFLOP/s"] = work.rollouts * (rollout + lesson) / (tflops * 1e12)
    for place, duration in seconds.items():
        costs = "" if price is None else f", {_money(duration, price)}"
        facts[f"time {place}"] = (
            f"{_duration(duration)} for {work.rollouts:,} rollouts with lessons{costs}"
        )
    if not seconds:
        facts["time"] = "nothing can be timed here: --tflops 300 tells it at an achieved rate"
    tell_facts(facts)
    return {
        "memory": verdict.as_json(),
        "parameters": shape.parameters,
        "flops": {"rollout": rollout, "lesson": lesson},
        "pace": asdict(pace) if pace else None,
        "seconds": seconds,
        "money": {}
        if price is None
        else {place: duration / 3600 * price for place, duration in seconds.items()},
    }


def _pace(kernel: HostKernel, work: HostWork, rank: int) -> MeasuredPace:
    """Random prompts of the supposed length, answers of the supposed length to each."""
    from symbiont_ecology.engine.forecast import measured_pace
    from symbiont_ecology.host.throughput import ThroughputMeter, Workload
    from symbiont_ecology.types import Decoding

    meter = ThroughputMeter(kernel, Workload(work.rows, work.prompt_tokens, work.new_tokens, rank))
    decoding = Decoding(temperature=1.0, min_new_tokens=work.new_tokens)
    requests = meter.requests(work.organelles)
    return measured_pace(kernel, requests, meter.weights, decoding, learns=True)[0]


def run_facts(config: RunConfig, price: float | None) -> dict[str, str]:
    """Memory, hours and money of a run, from a few seconds on the host itself; memory alone where
    its weights are not on this machine."""
    from symbiont_ecology.engine.build import build_host
    from symbiont_ecology.engine.forecast import forecast, run_load
    from symbiont_ecology.host.loading import read_config_file
    from symbiont_ecology.host.locating import config_file, weights_folder

    host, model = None, config.host.model
    try:
        described = read_config_file(config_file(model, may_fetch=False))
        why = f"the host would be downloaded first; symbiont doctor --host {model} says more"
        if weights_folder(model) is not None:
            print(f"timing {model} for some seconds …", file=sys.stderr, flush=True)
            try:
                host = build_host(config)
            except HostError as error:  # a plan may be made on another machine than the run
                why = str(error)
        load = run_load(config, host)
        verdict = judge_memory(described, config.host, load, is_loaded=host is not None)
    except HostError as error:
        return {"memory": f"not known: {error}", "time": "not measured"}
    facts = memory_facts(verdict, config.host, load)
    if host is None:
        return facts | {"time": f"not measured: {why}"}
    eta = forecast(config, host)
    facts["time"] = (
        f"{pace_fact(eta.pace)}; a generation takes at most {_duration(eta.generation)}, the run "
        f"about {_duration(eta.run)}"
    )
    if price is not None:
        facts["money"] = f"{_money(eta.run, price)}, for {eta.run / 3600:.3g} hours"
    return facts

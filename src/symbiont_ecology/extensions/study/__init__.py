"""Studies: comparisons that are planned before they run. Protocols of arms, worlds and seeds, the
suites that do them, statistics, paper packs, ablations, compute-matched SFT, and the demos;
and ``calibrate``, which looks at the health of a run's first generations."""

from symbiont_ecology.base.extension import Command, Extension

_HERE = "symbiont_ecology.extensions.study"
_COMMANDS = {
    "demo": "cli_demos:demo",
    "demo-real": "cli_demos:demo_real",
    "suite": "cli:suite",
    "compare": "cli:compare",
    "ablate": "cli:ablate",
    "sft": "cli:sft",
    "pack": "cli:pack",
    "transfer": "cli_baselines:transfer",
    "baselines": "cli_baselines:baselines",
}

EXTENSION = Extension(
    parts={
        "strategy": (f"{_HERE}.arms",),
        "routing": (f"{_HERE}.routings",),
        "shift": (f"{_HERE}.shifts",),
    },
    commands={
        "calibrate": Command(f"{_HERE}.cli_calibrate:calibrate", panel="Run"),
        **{name: Command(f"{_HERE}.{target}", panel="Study") for name, target in _COMMANDS.items()},
    },
    names=dict.fromkeys(("Comparison", "Suite"), f"{_HERE}.suite"),
)

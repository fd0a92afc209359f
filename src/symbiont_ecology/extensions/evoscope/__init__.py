"""A run to look at: one page in a browser, a report, differences of two runs, replies, figures.

``history``    the log of a run as columns over time; everyone else asks it
``news``       what happened, in plain sentences
``methods``    steps of evolution strategies, and lives with exams
``record``     a run as JSON for the page, sampled where it is long
``adapters``   norm and spectrum of every ΔW, of what is still there
``page``       the HTML file, and the same page while a run goes on
``compare``    differences of two runs
``report``     figures with their queries, what looks wrong, trials
``phylogeny``  descent in the artificial-life data standard
``figures``    three figures for papers
``cli``        the commands
"""

from symbiont_ecology.base.extension import Command, Extension

_CLI, _PANEL = "symbiont_ecology.extensions.evoscope.cli", "Look at runs"
EXTENSION = Extension(
    commands={
        "evoscope": Command(f"{_CLI}:evoscope", _PANEL),
        "report": Command(f"{_CLI}:report", _PANEL),
        "show": Command(f"{_CLI}:show", _PANEL),
        "diff": Command(f"{_CLI}:diff", _PANEL),
        "phylogeny": Command(f"{_CLI}:phylogeny", _PANEL),
    }
)

"""From a table of thumbs to adapters, and a report on which a decision can stand.

``cli``        ``learn-from``: reads a table, groups its users, learns, reports
``plan``       the rows that a host can read, and the config of the run
``grouping``   which users want the same, how surely, and in words
``measures``   what adapters and their controls make of rows that nobody learned
``report``     all of it as plain values, and as pages
"""

from symbiont_ecology.base.extension import Command, Extension

_HERE = "symbiont_ecology.extensions.company"

EXTENSION = Extension(commands={"learn-from": Command(f"{_HERE}.cli:learn_from", panel="Run")})

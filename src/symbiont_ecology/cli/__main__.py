"""``python -m symbiont_ecology.cli`` is ``symbiont``."""

from symbiont_ecology.cli import main

main()

"""``python -m cerebro_elastic.cli``: the command, where scripts are not on PATH."""

from cerebro_elastic.cli import main

main()

"""The command line: ``mreach``, the same as ``python -m mreach``. ``docs/cli.md`` describes it.

:mod:`~mreach.cli.app` holds the commands, :mod:`~mreach.cli.running` what they have in common: exit codes,
errors in one line, what goes to standard output.
"""

from mreach.cli.running import main

__all__ = ["main"]

"""The command line: `python -m horovod_sylvie {install-horovod,check,partition,plan}`.

Each command is a module of `commands/` with `add_arguments(parser)` and `run(arguments) -> int`.
Only the module of the command that was asked for is imported: `check` and `install-horovod` must
work where torch is missing or broken.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

COMMANDS: Final = MappingProxyType(
    {
        "install-horovod": "build Horovod for the installed torch, or install the kept wheel",
        "check": "print what is there and, for what is not, the command that brings it",
        "partition": "split a graph into one directory per rank",
        "plan": "say how gradients or halos should travel over a link, and what that gains",
    }
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The arguments after the program's name; those of this process if None.

    Returns:
        The exit status: 0 done, 1 failed (the reason is on stderr), 130 interrupted.

    Raises:
        SystemExit: On a usage error (2) and after `--help` (0).
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = argparse.ArgumentParser(prog="python -m horovod_sylvie")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}."
        )
        if argv[:1] == [name]:
            module = importlib.import_module(f"horovod_sylvie.commands.{name.replace('-', '_')}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    arguments = parser.parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        sys.stderr.write(f"{parser.prog} {arguments.command}: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())

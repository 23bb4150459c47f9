"""`python -m chunked_noise` prints the configuration; `python -m chunked_noise demo [TEXT_FILE]` shows the point."""

import argparse
import sys
from importlib.metadata import metadata
from pathlib import Path

from ._config import show_config
from ._demo import report


def main() -> int:
    """Runs the command line and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m chunked_noise", description="Prefix-invariant seeded noise.")
    commands = parser.add_subparsers(dest="command")
    demo = commands.add_parser("demo", help="run a causal noise layer over a text and show what stays unchanged")
    demo.add_argument("text_file", nargs="?", type=Path, help="any file (default: this project's README)")
    arguments = parser.parse_args()
    if arguments.command is None:
        print(show_config())
        return 0
    if arguments.text_file is None:
        # The README is the description of the installed package.
        name, text = "README.md", str(metadata("chunked_noise").json["description"]).encode()
    else:
        name = str(arguments.text_file)
        try:
            text = arguments.text_file.read_bytes()
        except OSError as error:
            print(f"cannot read {name}: {error.strerror}", file=sys.stderr)
            return 1
    if not text:
        print(f"{name} is empty: there are no tokens to add noise to", file=sys.stderr)
        return 1
    print(report(name, text))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m edgesim` is `edgesim`."""

import sys

INTERRUPTED = 130  # as in edgesim.cli


def main() -> None:
    """Import the command line and run it; an interrupt meanwhile has no traceback."""
    try:
        from edgesim.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()

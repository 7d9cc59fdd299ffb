"""`python -m edgesim` is `edgesim`."""

from edgesim.cli import main

if __name__ == "__main__":
    main()

"""``python -m mreach``: the command line."""

from mreach.cli import main

if __name__ == "__main__":
    main()

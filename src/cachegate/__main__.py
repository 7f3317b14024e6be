"""`python -m cachegate` is the `cachegate` command."""

from cachegate.cli import main

if __name__ == "__main__":
    main()

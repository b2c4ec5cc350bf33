"""`python -m turnwise` is the command `turnwise`."""

from turnwise.commands.cli import main

if __name__ == "__main__":
    main()

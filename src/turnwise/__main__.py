"""The command `turnwise`, as `python -m turnwise` too: Ctrl-C is one line from the beginning."""

import os
import sys
import warnings


def main() -> None:
    """Run the command line. Always raises SystemExit."""
    if sys.platform == "win32":
        raise SystemExit("turnwise: Windows lacks what it locks files with: install it in WSL")
    if "--debug" not in sys.argv:
        warnings.simplefilter("ignore", FutureWarning)  # libraries to their authors
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        from turnwise.commands import cli

        cli.main()
    except KeyboardInterrupt:  # before the commands are there
        print("turnwise: interrupted", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()

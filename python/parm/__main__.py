"""`python -m parm` and `parm-rs` are the program, for `uvx parm-rs demo` and where no scripts folder is on the PATH."""

import os
import sys

from ._command import binary


def main() -> None:
    """Becomes the program."""
    os.execv(binary(), ["parm", *sys.argv[1:]])


if __name__ == "__main__":
    main()

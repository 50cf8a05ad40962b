"""`python -m trainer`: the command `ser-train`."""

import sys

from trainer.cli import main

sys.exit(main())

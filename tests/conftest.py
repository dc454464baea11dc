"""Where the tests find real data: $SORDINO_DATA, or a folder shared/data beside the checkout."""

from __future__ import annotations

import os
from pathlib import Path

BESIDE = Path(__file__).parents[2] / "shared" / "data"

if "SORDINO_DATA" not in os.environ and BESIDE.is_dir():
    os.environ["SORDINO_DATA"] = str(BESIDE)

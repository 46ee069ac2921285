"""The folders of this user, by the XDG base directory specification."""

from __future__ import annotations

import os
from pathlib import Path


def user_folder(variable: str, default: str) -> Path:
    """Return icecdc's folder below the one that a variable names, which must be absolute, or below the default."""
    base = Path(os.environ.get(variable, ""))
    return (base if base.is_absolute() else Path.home() / default) / "icecdc"

"""Packages that not every job needs: imported where they are used, with a plain error when one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from icecdc_core.errors import DependencyError


@contextmanager
def required(package: str, extra: str, remedy: str = "") -> Iterator[None]:
    """Import a package in the block; one that is not installed is a `DependencyError` that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise DependencyError(
            f"The package {package} is not installed",
            subject="package",
            value=package,
            remedy="; ".join(filter(None, (f'pip install "icecdc[{extra}]"', remedy))),
        ) from error


@contextmanager
def supported_pyspark() -> Iterator[None]:
    """Import names in the block that an older pyspark does not have."""
    try:
        yield
    except ImportError:
        # By its name, because it is a module above this one. Its import refuses the versions that are not supported.
        import_module("icecdc_core.session.compat")
        raise


class ProgressBar(Protocol):
    """What the jobs do with a bar of tqdm."""

    def update(self, n: float = 1) -> object:
        """Move the bar on by this much."""


class _NoBar:
    def update(self, n: float = 1) -> None:
        """Show nothing."""


@contextmanager
def progress_bar(**options: Any) -> Iterator[ProgressBar]:
    """Show a progress bar for the block; nothing is shown where tqdm is not installed, because no job needs it."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        yield _NoBar()
        return
    with tqdm(**options) as bar:
        yield bar


def installed_version(package: str) -> str:
    """Return the version of an installed package; one that is imported from a folder is "from source"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "from source"

"""Typed errors for a data folder that is full or cannot be used."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from icecdc_core.errors import DiskFullError, ServiceStartError


@contextmanager
def folder_errors(data_folder: Path, service: str) -> Iterator[None]:
    """Turn the errors of the operating system in the block into typed errors."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full_error(data_folder, service) from error
        raise ServiceStartError(
            f"The folder of the embedded {service} cannot be used: {error}",
            subject="data_folder",
            value=str(data_folder),
            remedy="give a folder you may write to",
        ) from error


def disk_full_error(data_folder: Path, service: str) -> DiskFullError:
    """The error of a full disk."""
    return DiskFullError(
        f"No room left for the data of the embedded {service}",
        subject="data_folder",
        value=str(data_folder),
        remedy="free some space, or give a data_folder on another disk (the default one follows TMPDIR)",
    )

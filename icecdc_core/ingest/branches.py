"""The branch of a table into which an ingest writes: readers see its rows once a person has merged it."""

from typing import Any

from py4j.protocol import Py4JJavaError

from icecdc_core.errors import ConfigError

MAIN = "main"


class BranchTable:
    """Iceberg's table as one of its branches shows it; until the branch exists, as the main branch does."""

    def __init__(self, table: Any, branch: str) -> None:
        self._table, self.branch = table, branch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def currentSnapshot(self) -> Any:  # noqa: N802
        return self._table.snapshot(self.branch) or self._table.currentSnapshot()


def branch_of(table: Any) -> str:
    return table.branch if isinstance(table, BranchTable) else MAIN


def on_branch(table: Any, branch: str) -> Any:
    return table if branch == MAIN else BranchTable(table, branch)


def open_branch(table: Any, name: str, branch: str) -> Any:
    """Create the table's branch from the head of the main branch if it does not exist."""
    if branch == MAIN:
        return table
    found = table.refs().get(branch)
    if found is None:
        try:
            table.manageSnapshots().createBranch(branch).commit()
        except Py4JJavaError:  # another copy of the job may have been faster
            table.refresh()
            if table.refs().get(branch) is None:
                raise
    elif not found.isBranch():
        raise ConfigError(
            f"This is a tag of {name}", subject="branch", value=branch, remedy="name a branch, or a new one"
        )
    return BranchTable(table, branch)


def written_name(name: str, branch: str) -> str:
    """Return the name by which Spark writes into a branch."""
    return name if branch == MAIN else f"{name}.`branch_{branch}`"

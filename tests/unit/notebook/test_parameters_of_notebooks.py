"""The parameters cells of the shipped notebooks: short to read, and every parameter can be passed."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from icecdc_core.config import SyncConfig
from icecdc_core.config.model import ParameterModel
from icecdc_core.explore.config import ExploreConfig
from icecdc_core.ingest import IngestConfig
from icecdc_core.notebook import read_parameters
from tests.dbutils import Dbutils
from tests.parameter_values import NEEDED, OTHER, WITH, WITHOUT_OTHER

FOLDER = Path(__file__).parents[3] / "notebooks"
KINDS: dict[str, type[ParameterModel]] = {
    "00_setup": SyncConfig,
    "10_initial_export": SyncConfig,
    "20_incremental_cdc": SyncConfig,
    "30_validation": SyncConfig,
    "40_kafka_ingest": IngestConfig,
    "50_explore": ExploreConfig,
    "90_smoke": SyncConfig,
}
each_notebook = pytest.mark.parametrize("notebook", KINDS)
each_parameter = pytest.mark.parametrize(
    ("notebook", "name"),
    [
        (notebook, parameter.name)
        for notebook, kind in KINDS.items()
        for parameter in kind.parameters()
        if parameter.name not in WITHOUT_OTHER
    ],
)


@cache
def _loaded(notebook: str) -> Any:
    return load_notebook_node(str(FOLDER / f"{notebook}.ipynb"))


def _read(notebook: str) -> Any:
    return deepcopy(_loaded(notebook))


def _code_cells(node: Any) -> list[Any]:
    return [cell for cell in node.cells if cell.cell_type == "code"]


def _namespace(node: Any, **more: Any) -> dict[str, Any]:
    """The globals of a notebook whose cells before `read_parameters` ran."""
    sources = [cell.source for cell in _code_cells(node)]
    before = sources[: next(number for number, source in enumerate(sources) if "read_parameters" in source)]
    namespace = dict(more)
    for source in before:
        exec(source, namespace)
    return namespace


def _given(notebook: str, name: str) -> dict[str, str]:
    return {**NEEDED[KINDS[notebook]], **WITH.get(name, {}), name: OTHER[name]}


class DescribePassedParameters:
    @each_parameter
    def it_reaches_the_run_through_papermill(self, notebook, name):
        given = _given(notebook, name)
        node = parameterize_notebook(_read(notebook), given)
        actual = read_parameters(_namespace(node), KINDS[notebook])
        assert getattr(actual, name) == getattr(KINDS[notebook](**given), name)
        assert getattr(actual, name) != KINDS[notebook].model_fields[name].get_default(call_default_factory=True)

    @each_parameter
    def it_reaches_the_run_through_a_widget(self, notebook, name):
        given = _given(notebook, name)
        node = _read(notebook)
        actual = read_parameters(_namespace(node, dbutils=Dbutils(**given)), KINDS[notebook])
        assert getattr(actual, name) == getattr(KINDS[notebook](**given), name)

    @each_notebook
    def it_is_what_a_person_writes_into_the_shown_cell(self, notebook):
        kind = KINDS[notebook]
        node = _read(notebook)
        _, shown, *_ = _code_cells(node)
        for name, value in NEEDED[kind].items():
            shown.source = shown.source.replace(f'{name}: str = ""', f'{name}: str = "{value}"')
        actual = read_parameters(_namespace(node), kind)
        assert {name: getattr(actual, name) for name in NEEDED[kind]} == {
            name: getattr(kind(**NEEDED[kind]), name) for name in NEEDED[kind]
        }

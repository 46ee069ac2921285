"""Parameters of every type can be passed to the shipped notebooks."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.config.model import ParameterModel
from icecdc_core.explore.config import ExploreConfig
from icecdc_core.ingest import IngestConfig
from icecdc_core.notebook import read_parameters
from tests.dbutils import Dbutils

FOLDER = Path(__file__).parents[3] / "notebooks"
OTHERS: dict[str, type[ParameterModel]] = {"40_kafka_ingest": IngestConfig, "50_explore": ExploreConfig}
EXAMPLE = "60_product_search"  # it makes a table of its own
KINDS = {path.stem: OTHERS.get(path.stem, SyncConfig) for path in FOLDER.glob("*.ipynb") if path.stem != EXAMPLE}

OF_AN_INDEX = {"table": "lake.ns.t", "opensearch_url": "https://search:9200"}
NEEDED: dict[type[ParameterModel], dict[str, str]] = {
    SyncConfig: OF_AN_INDEX,
    ExploreConfig: OF_AN_INDEX,
    IngestConfig: {"job": "j", "bootstrap_servers": "h:9092", "topics": "t", "table": "lake.ns.t"},
}
OF_ALL = {"catalog_properties": '{"type": "rest", "uri": "https://catalog"}', "report_path": "/tmp/other"}
# Texts that are not the default, as a job passes them: one of each type.
OTHER: dict[type[ParameterModel], dict[str, str]] = {
    SyncConfig: {"dry_run": "true", "identifier_columns": "a,b", "max_polls": "7", "settings": '{"a": 1}',
        "target_lag": "5m"},
    ExploreConfig: {"from_snapshot": "-3", "sample_rows": "5", "query": "name:x", "row_filter": "id > 3"},
    IngestConfig: {"auto_create": "true", "max_records_per_batch": "7", "partition_by": "days(ts)", "format": "dms"},
}  # fmt: skip


def read(node: Any, kind: type[ParameterModel], **more: Any) -> Any:
    """Run the cells of a notebook before `read_parameters`, then read them."""
    sources = [cell.source for cell in node.cells if cell.cell_type == "code"]
    for source in sources[: next(number for number, source in enumerate(sources) if "read_parameters" in source)]:
        exec(source, more)
    return read_parameters(more, kind)


@pytest.mark.parametrize(("notebook", "kind"), KINDS.items(), ids=KINDS)
class DescribeTheParametersOfANotebook:
    def it_reaches_the_run_through_papermill_and_through_a_widget(self, notebook, kind):
        from papermill.iorw import load_notebook_node  # the imports take seconds, in every process that runs tests
        from papermill.parameterize import parameterize_notebook

        loaded = load_notebook_node(str(FOLDER / f"{notebook}.ipynb"))
        for name, other in {**OF_ALL, **OTHER[kind]}.items():
            given = {**NEEDED[kind], name: other}
            expected = getattr(kind(**given), name)
            passed = read(parameterize_notebook(deepcopy(loaded), given), kind)
            typed = read(loaded, kind, dbutils=Dbutils(**given))
            optional = read(parameterize_notebook(deepcopy(loaded), {"options": json.dumps(given)}), kind)
            assert {getattr(each, name) == expected for each in (passed, typed, optional)} == {True}
            assert expected != kind.model_fields[name].get_default(call_default_factory=True)

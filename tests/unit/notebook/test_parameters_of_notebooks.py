"""Parameters of every type can be passed to the shipped notebooks."""

import json
from pathlib import Path

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.explore.config import ExploreConfig
from icecdc_core.ingest import IngestConfig
from icecdc_core.notebook import read_parameters
from tests.dbutils import Dbutils

FOLDER = Path(__file__).parents[3] / "notebooks"
OTHERS = {"40_kafka_ingest": IngestConfig, "50_explore": ExploreConfig}
EXAMPLE = "60_product_search"  # it makes a table of its own
KINDS = {path.stem: OTHERS.get(path.stem, SyncConfig) for path in FOLDER.glob("*.ipynb") if path.stem != EXAMPLE}
OF_AN_INDEX = {"table": "lake.ns.t", "opensearch_url": "https://search:9200"}
OF_AN_INGEST = {"job": "j", "bootstrap_servers": "h:9092", "topics": "t", "table": "lake.ns.t"}
OF_ALL = {"catalog_properties": '{"type": "rest", "uri": "https://catalog"}', "report_path": "/tmp/other"}
# Texts that are not the default, as a job passes them: one of each type.
OTHER = {
    SyncConfig: {"dry_run": "true", "identifier_columns": "a,b", "max_polls": "7", "settings": '{"a": 1}',
        "target_lag": "5m"},
    ExploreConfig: {"from_snapshot": "-3", "sample_rows": "5", "query": "name:x", "row_filter": "id > 3"},
    IngestConfig: {"auto_create": "true", "max_records_per_batch": "7", "partition_by": "days(ts)", "format": "dms"},
}  # fmt: skip


@pytest.mark.parametrize(("notebook", "kind"), KINDS.items(), ids=KINDS)
def it_takes_parameters_from_papermill_a_widget_and_options(notebook, kind):
    cells = json.loads((FOLDER / f"{notebook}.ipynb").read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    before = sources[: next(number for number, source in enumerate(sources) if "read_parameters" in source)]
    (place,) = (n for n, cell in enumerate(cells) if "parameters" in cell["metadata"].get("tags", []))
    assert "".join(cells[place]["source"]) == before[-1]  # so papermill puts its cell behind it

    def read(injected, **namespace):
        for source in (*before, *(f"{name} = {value!r}" for name, value in injected.items())):
            exec(source, namespace)
        return read_parameters(namespace, kind)

    for name, other in {**OF_ALL, **OTHER[kind]}.items():
        given = {**(OF_AN_INGEST if kind is IngestConfig else OF_AN_INDEX), name: other}
        expected = getattr(kind(**given), name)
        found = read(given), read({}, dbutils=Dbutils(**given)), read({"options": json.dumps(given)})
        assert [getattr(each, name) for each in found] == [expected] * 3
        assert expected != kind.model_fields[name].get_default(call_default_factory=True)

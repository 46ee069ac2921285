"""A plan says what a sync will do with each index of a file and what that costs; the sync does that, or refuses."""

import json

import pytest
import yaml

from icecdc_core import SyncConfig
from icecdc_core.__main__ import main
from icecdc_core.commits.store import PositionStore
from tests.servers.stub_model import DIMENSION

TABLE = "CREATE TABLE {t} (id INT, v STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')"
MODEL = {"function": "tests.servers.stub_model:embed", "model": "letters", "dimension": DIMENSION}
LUCENE = {"method": {"name": "hnsw", "engine": "lucene"}}
BEFORE = {
    "same": {"select": ["id", "v"]},
    "followed": {"mapping": {"v": {"type": "text"}}},
    "static": {"settings": {"refresh_interval": "5s"}},
    "selected": {"select": ["id", "v"]},
}
AFTER = {
    "same": {"select": ["id", "v AS v"]},  # in other words
    "followed": {"mapping": {"v": {"type": "text", "search_analyzer": "whitespace"}}},
    "static": {"settings": {"refresh_interval": "5s", "replication.type": "SEGMENT"}},  # only the server knows it
    "selected": {"select": ["id", "upper(v) AS v"]},
    "new": {"embed": {"vector": MODEL}, "mapping": {"vector": LUCENE}},
    "nested": {"alias": "t"},
    "conflict": {"mapping": {"v": {"type": "integer"}}},
}


@pytest.fixture
def write_file(make_config, name, tmp_path):
    """Write an index file whose entries have indexes of their own and the table of the test."""

    def write(entries, policy="reexport"):
        config = make_config(on_schema_change=policy, embed_table=f"lake.ns.{name}_vectors")
        common = json.loads(config.model_dump_json(include=config.model_fields_set - {"table", "index"}))
        own = {"table": config.table, "identifier_columns": common.pop("identifier_columns")}
        entries = {entry: {**own, "index": f"{name}-{entry}", **given} for entry, given in entries.items()}
        (tmp_path / "indexes.yml").write_text(yaml.safe_dump({"defaults": common, "indexes": entries}))
        return tmp_path / "indexes.yml"

    return write


@pytest.fixture
def run(capsys, tmp_path):
    def ended(command, *options):
        code = main([command, "--file", str(tmp_path / "indexes.yml"), "--json", *options], "icecdc")
        return code, json.loads(capsys.readouterr().out.splitlines()[-1])["indexes"]

    return ended


def it_says_what_a_sync_then_does_and_the_sync_does_nothing_else(
    spark, sql, write_file, run, opensearch, name, tmp_path, model
):
    words, vectors = f"lake.ns.{name}_words", f"lake.ns.{name}_vectors"

    def stored():
        indexes = opensearch.indices.get(index=f"{name}*", params={"expand_wildcards": "all"})
        found = {entry: PositionStore(opensearch, config).read() for entry, config in configs.items()}
        return indexes, found, spark.catalog.tableExists(vectors)

    def physical(entry):
        return {*opensearch.indices.get(index=f"{name}-{entry}--*")}

    sql(TABLE, "INSERT INTO {t} SELECT CAST(id AS INT), concat('v', id % 60) FROM range(120)")
    spark.sql(f"CREATE TABLE {words} AS SELECT concat('v', id) AS v, 1 AS n FROM range(60)")
    try:
        write_file(BEFORE)
        assert run("sync")[0] == 0
        assert run("plan")[0] == 0  # nothing would change
        sql("DELETE FROM {t} WHERE id < 4", "UPDATE {t} SET v = 'w' WHERE id IN (4, 5)")
        spark.sql(f"UPDATE {words} SET n = 2 WHERE v IN ('v7', 'v8', 'v9')")
        AFTER["new"]["embed"]["vector"]["text"] = f"'{name} ' || v"
        AFTER["nested"]["nest"] = {"word": {"table": words, "alias": "w", "on": "w.v = t.v", "as": "object"}}
        configs = SyncConfig.load_all(write_file(AFTER))
        before = stored()
        code, planned = run("plan")
        assert (code, stored()) == (2, before)
        assert {entry: found["action"] for entry, found in planned.items()} == {
            **{"same": "sync", "followed": "follow", "static": "export", "selected": "export"},
            **dict.fromkeys(("new", "nested", "conflict"), "create"),
        }
        for entry, why in (("followed", "search_analyzer was"), ("static", "replication.type"), ("selected", "select")):
            assert why in planned[entry]["notes"][0]
        # The changes of a day: three words have two documents each.
        a_day = {entry: found["documents_a_day"] for entry, found in planned.items()}
        assert a_day == {**dict.fromkeys(planned, 6.0), "same": None, "nested": 12.0}
        conflicts = {
            entry: (found["sampled"], found["rejected"]) for entry, found in planned.items() if found["rejected"]
        }
        assert (conflicts, planned["new"]["new_vectors"]) == ({"conflict": (116, 116)}, 61)
        assert "failed to parse field [v]" in planned["conflict"]["rejected_samples"][0]["reason"]

        plan, here = tmp_path / "plan.json", {entry: physical(entry) for entry in BEFORE}
        plan.write_text(f"a line before\n{json.dumps({'indexes': planned})}\n")
        synced = run("sync", "--only-as-planned", str(plan))[1]
        assert synced.pop("conflict")["error"] == "RejectedDocumentsError"
        for entry, found in synced.items():
            documents = found["upserts"] + found["deletes"] + found["already_applied"]
            assert (entry, documents) == (entry, planned[entry]["documents"])
            if entry != "new":  # whose vectors are not counted
                assert found["bytes"] == pytest.approx(planned[entry]["bytes"], rel=0.1)
            known = [entry] if entry in BEFORE else BEFORE  # else the rate is that of the last export of any index
            assert planned[entry]["rate_from"] in [f"{name}-{each}" for each in known]
        kept = {entry for entry, indexes in here.items() if physical(entry) == indexes}
        assert (kept, len(model.calls())) == ({"same", "followed"}, 61)

        # Syncs of rows are as planned, and of nothing. An export once more and another spec are not.
        sql("DELETE FROM {t} WHERE id = 10")
        good = ("--only", "same,followed,static,selected,new,nested", "--only-as-planned", str(plan))
        assert [run("sync", *good)[0] for _ in range(2)] == [0, 0]
        assert run("export", "--only", "selected", "--only-as-planned", str(plan))[0] == 2
        configs = SyncConfig.load_all(write_file({**AFTER, "selected": BEFORE["selected"]}))
        before = stored()
        code, found = run("sync", "--only", "selected", "--only-as-planned", str(plan))
        assert (code, found["selected"]["error"]) == (2, "UnplannedActionError")
        plan.write_text("[]")
        assert run("sync", "--only", "selected", "--only-as-planned", str(plan))[0] == 2
        write_file({**AFTER, "selected": BEFORE["selected"]}, policy="fail")
        refused = run("plan", "--only", "selected")[1]["selected"]
        assert (stored(), refused["action"], refused["refused_by"]) == (before, "export", "on_schema_change")
    finally:
        for table in (words, vectors):
            spark.sql(f"DROP TABLE IF EXISTS {table}")

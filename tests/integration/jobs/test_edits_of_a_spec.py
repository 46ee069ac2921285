"""Random edits of an index file between syncs: the index equals a new export of the file, or nothing is done.

``ICECDC_FUZZ`` says how many files are edited (one by default), ``ICECDC_SEED`` which; each edit is printed. A file is
drawn as meanings of its parts, each in one of several spellings.
"""

import json
import os

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st
from pyspark.sql import functions as F

from icecdc_core import SyncConfig, export_table, sync_changes
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import IndexConflictError, SchemaChangeError
from tests.histories.proof import placed

MANY, SEED = int(os.environ.get("ICECDC_FUZZ", "1")), int(os.environ.get("ICECDC_SEED", "20261121"))

# The meanings of each part of an entry, and spellings of each; {r} and {p} are names of the two tables.
PARTS = {
    "select": {
        "columns": [
            {"select": ["id", "title", "n", "region"]},
            {"select": [" id", "{r}.TITLE AS title ", "N AS n", "`region`"]},
            {"select": '["id", "(title) title", "{r}.n -- a number", "region"]'},
            {"columns": "id, title,n ,region"},
        ],
        "all": [{}, {"select": "*"}, {"select": [" * "], "columns": []}],
        "computed": [
            {"select": ["id", "title", "region", "upper(concat(title, 'Ab  c')) AS loud", "n + 1.5D AS more"]},
            {"select": ["id", "title", "region", "UPPER( concat(`title`,'Ab  c') ) loud", "({r}.N+1.5D) more"]},
        ],
        "another text": [{"select": ["id", "title", "region", "upper(concat(title, 'ab  c')) AS loud", "n AS more"]}],
    },
    "row_filter": {
        "none": [{}, {"row_filter": " "}],
        "positive": [{"row_filter": each} for each in ("n > 0", "( {r}.n>0 ) ", "N > 0 /* some */")],
        "another number": [{"row_filter": "n > 1"}],
    },
    "mapping": {
        "none": [{}, {"mapping": "{}"}, {"mapping": {"title": {"type": "text"}}}],
        "keyword": [{"mapping": {"title": {"type": "keyword"}}}, {"mapping": '{"title": {"type": "keyword"}}'}],
        "english": [{"mapping": {"title": {"analyzer": "english", **more}}} for more in ({}, {"type": "text"})],
        "searched": [{"mapping": {"title": {"analyzer": "english", "search_analyzer": "whitespace"}}}],
    },
    "settings": {
        "none": [{}, {"settings": {}}],
        "seldom": [
            {"settings": each}
            for each in (
                {"refresh_interval": "7s"},
                {"index": {"refresh_interval": "7s"}},
                '{"refresh_interval": "7s"}',
            )
        ],
        "window": [{"settings": {"max_result_window": 20000}}, {"settings": {"index.max_result_window": "20000"}}],
        "codec": [{"settings": {"codec": "best_compression"}}],
    },
    "places": {
        "none": [{}, {"routing": ""}],
        "shards": [{"routing": "region"}],
        "indexes": [{"index_column": "region"}],
    },
    "nest": {
        "none": [{}, {"nest": "{}"}],
        "all": [{"as": "array"}, {"as": "array", "select": "*", "order_by": []}, {"as": "array", "type": "object"}],
        "ordered": [
            {"as": "array", "select": ["name", "s"], "order_by": "name DESC"},
            {"as": "array", "select": ["{p}.name", "{p}.s "], "order_by": ["( {p}.name ) desc"], "row_filter": ""},
        ],
        "by a struct": [{"as": "array", "select": ["s", "name"], "order_by": ["s", "name"]}],
        "nested": [{"as": "array", "type": "nested", "select": ["name"]}],
        "one": [
            {"select": ["name"], "row_filter": "{p}.place = 0"},
            {"as": "object", "select": '["{p}.name AS name"]', "row_filter": "0={p}.PLACE"},
        ],
        "deep": [
            {
                "as": "array",
                "select": ["name"],
                "nest": {
                    "b": {"table": "{t}", "alias": "b", "on": "b.id = {p}.root", "select": ["b.s", "b.id"]},
                    "a": {"table": "{t}", "alias": "a", "on": "a.id = {p}.place", "select": ["a.s", "a.n"]},
                },
            }
        ],
    },
}
LINKS = ("{p}.root = {r}.id", "{r}.ID={p} . root -- a link", "(`{p}`.root) == {r}.id")
ROWS = (
    "UPDATE {t} SET n = n + 1, region = 'west' WHERE id % 3 = 0",
    "DELETE FROM {t} WHERE id % 5 = 1",
    "INSERT",
    "UPDATE {u} SET name = concat(name, '!') WHERE root % 2 = 0",
    "UPDATE {u} SET root = 3 - root WHERE place = 1 AND root < 3",
)
COLUMNS = (
    "ALTER TABLE {u} ALTER COLUMN s.x FIRST",
    *("ALTER TABLE {u} ALTER COLUMN s.y FIRST", "ALTER TABLE {u} ALTER COLUMN name FIRST"),
    *("ALTER TABLE {t} ALTER COLUMN s.x FIRST", "ALTER TABLE {t} ALTER COLUMN region FIRST"),
    *("ALTER TABLE {t} ADD COLUMN more{#} STRING", "ALTER TABLE {u} ADD COLUMN s.z{#} INT"),
)
WRITTEN = {
    "spelling": st.integers(1, 11),
    "aliases": st.tuples(st.sampled_from(["", "r", "Root"]), st.sampled_from(["", "p"])),
}
MEANINGS = st.dictionaries(st.sampled_from(sorted(PARTS)), st.integers(0, 20), min_size=1, max_size=2)
SPELLED = st.fixed_dictionaries({**WRITTEN, "meanings": st.just({}), "rows": st.just(()), "columns": st.just("")})
MOVED = st.fixed_dictionaries(
    {**WRITTEN, "meanings": st.just({}), "rows": st.just(()), "columns": st.sampled_from(COLUMNS)}
)
CHANGED = st.fixed_dictionaries(
    {**WRITTEN, "meanings": MEANINGS, "rows": st.lists(st.sampled_from(ROWS), max_size=2), "columns": st.just("")}
)
SOME, MORE = st.tuples(SPELLED, MOVED, CHANGED), st.lists(SPELLED | MOVED | CHANGED, max_size=0 if MANY == 1 else 4)


class Editor:
    """An index file, and its two tables."""

    def __init__(self, spark, config, path):
        self.spark, self.config, self.path, self.added = spark, config, path, 0
        self.root, self.nested = config.table, f"{config.table}_u"
        self.meanings = dict.fromkeys(PARTS, "none") | {"select": "all", "nest": "ordered"}
        pair = "STRUCT<y: INT, x: INT>"
        self.sql(f"CREATE TABLE {{t}} (id BIGINT, title STRING, n INT, s {pair}, region STRING) USING iceberg")
        self.sql(f"CREATE TABLE {{u}} (place INT, root BIGINT, name STRING, s {pair}) USING iceberg")
        pair = "named_struct('y', {0}, 'x', -{0})".format("cast(id % 6 AS int)")
        self.sql(f"INSERT INTO {{t}} SELECT id, concat('title ', id), id % 3, {pair}, 'south' FROM range(6)")
        self.sql(
            f"INSERT INTO {{u}} SELECT id DIV 6, id % 6, 'same', {pair.replace('id % 6', 'id DIV 6')} FROM range(12)"
        )

    def sql(self, statement):
        self.added += 1
        if statement == "INSERT":
            row = self.spark.table(self.root).where("id = 2").withColumn("id", F.lit(100 + self.added).cast("long"))
            row.writeTo(self.root).append()
        else:
            self.spark.sql(replaced(statement, {"t": self.root, "u": self.nested, "#": f"{self.added}"}))

    def write(self, spelling, aliases):
        """Write the file, and load it."""
        root, nested = (
            given or table.split(".")[-1] for given, table in zip(aliases, (self.root, self.nested), strict=True)
        )
        chosen = {part: PARTS[part][meaning] for part, meaning in self.meanings.items()}
        chosen = {part: each[spelling % len(each)] for part, each in chosen.items()}
        names = {"t": self.root, "r.": f"{root}.", "r": root, "p": nested}
        if self.meanings["nest"] != "none":
            nest = {"table": self.nested, "on": LINKS[spelling % len(LINKS)], "alias": aliases[1], **chosen["nest"]}
            chosen["nest"] = {"nest": {"parts": nest}}
        elif not aliases[0]:
            names["r."] = ""  # a table without an alias has no name in expressions, unless others are nested
        entry = {"table": self.root, "identifier_columns": "id", "alias": aliases[0]}
        for part in chosen.values():
            entry |= part
        entry = replaced(entry, names)
        if spelling % 2:
            entry = backwards(entry)
        if spelling % 3 == 1 and isinstance(entry.get("nest"), dict):
            entry["nest"] = json.dumps(entry["nest"])
        given = {name: getattr(self.config, name) for name in ("opensearch_url", "warehouse", "positions_index")}
        given["catalog_properties"] = dict(self.config.catalog_properties)
        content = {"defaults": given, "indexes": {self.config.index: entry}}
        self.path.write_text(yaml.safe_dump(content, default_flow_style=spelling % 5 == 0, sort_keys=False, width=60))
        return SyncConfig.load(self.path, self.config.index)


def replaced(value, names):
    if isinstance(value, dict):
        return {key: replaced(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [replaced(each, names) for each in value]
    for name, text in names.items():
        value = value.replace("{r}." if name == "r." else f"{{{name}}}", text) if isinstance(value, str) else value
    return value


def backwards(value):
    return {key: backwards(each) for key, each in reversed(value.items())} if isinstance(value, dict) else value


def without_nulls(value):
    """A field that was added to the table later is missing in a document that was written before."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def state(opensearch, index):
    """What searches find in an index: documents and their places, mapping and settings."""
    documents = [(*place, without_nulls(source)) for *place, source in placed(opensearch, index)]
    indexes = opensearch.indices.get(index=index).values()
    chosen = ("refresh_interval", "max_result_window", "codec", "number_of_shards")
    options = [[each["settings"]["index"].get(name) for name in chosen] for each in indexes]
    return documents, sorted(options, key=str), sorted((each["mappings"]["properties"] for each in indexes), key=str)


@pytest.mark.timeout(6 * 3600)
@pytest.mark.usefixtures("sql")
def it_follows_every_edit_and_none_that_means_the_same(spark, opensearch, make_config, name, tmp_path):
    lived = []

    @seed(SEED)
    @settings(
        max_examples=MANY,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.tuples(SOME, MORE).flatmap(lambda each: st.permutations([*each[0], *each[1]])))
    def live(edits):
        lived.append(len(edits))
        index = f"{name}_{len(lived)}"
        config = make_config(table=f"lake.ns.{index}", index=index, positions_index=f"positions-{name}-{len(lived)}")
        editor = Editor(spark, config, tmp_path / f"{index}.yml")
        try:
            export_table(spark, editor.write(0, ("", "")))
            for number, edit in enumerate(edits):
                print(f"{len(lived)}.{number}: {edit}", flush=True)
                _edit(spark, opensearch, editor, f"{index}-new", **edit)
        finally:
            for table in (editor.root, editor.nested):
                spark.sql(f"DROP TABLE IF EXISTS {table}")
            wanted = f"{index}-*,positions-{name}-{len(lived)}"
            opensearch.indices.delete(index=wanted, params={"expand_wildcards": "all", "ignore_unavailable": "true"})

    live()
    print(f"{len(lived)} files, seed {SEED}")


def _edit(spark, opensearch, editor, new_index, *, meanings, spelling, aliases, rows, columns):
    before = dict(editor.meanings)
    for part, number in meanings.items():
        editor.meanings[part] = sorted(PARTS[part])[number % len(PARTS[part])]
    for statement in filter(None, (*rows, columns)):
        editor.sql(statement)
    config = editor.write(spelling, aliases)
    print(editor.path.read_text(), flush=True)
    before_sync, is_same = PositionStore(opensearch, config).read(), editor.meanings == before and not columns
    try:
        report = sync_changes(spark, config)
        refused = None
    except SchemaChangeError as error:
        refused = error
    if is_same:
        assert refused is None, refused
    if is_same and not rows:
        assert (report.strategy, PositionStore(opensearch, config).read()) == ("none", before_sync)
        return
    if refused and "on_schema_change=reexport" in refused.remedy:
        sync_changes(spark, config.replace(on_schema_change="reexport"))
    elif refused:  # the edit drops a part
        with pytest.raises(IndexConflictError, match="replace_index=true"):
            export_table(spark, config)
        export_table(spark, config.replace(replace_index=True))
    new = config.replace(index=new_index, positions_index=f"positions-{new_index}")
    export_table(spark, new)
    assert state(opensearch, config.index) == state(opensearch, new_index)
    opensearch.indices.delete(index=f"{new_index}-*,positions-{new_index}", params={"expand_wildcards": "all"})

"""Random edits of an index file between syncs: the index equals a new export of the file, or nothing is done.

``ICECDC_FUZZ`` says how many files are edited (one by default), ``ICECDC_SEED`` which; each edit is printed. A file is
drawn as meanings of its parts, each in one of several spellings.
"""

import json
import os

import pytest
import yaml
from hypothesis import strategies as st
from pyspark.sql import functions as F

from icecdc_core import SyncConfig, export_table, sync_changes
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import IndexConflictError, SchemaChangeError
from tests.checks.examples import SEED, for_examples
from tests.histories.proof import placed, without_nulls

MANY = int(os.environ.get("ICECDC_FUZZ", "1"))


def spelled(name, *values):
    return [{name: value} for value in values]


def nested(**entry):
    return {"as": "array", **entry}


B, A = ({"table": "{t}", "alias": a, "on": f"{a}.id = {{p}}.{key}"} for a, key in (("b", "root"), ("a", "place")))
# The meanings of each part of an entry, and spellings of each; {r} and {p} are names of the two tables.
PARTS = {
    "select": {
        "all": [{}, *spelled("select", "*", [" * "])],
        "columns": [{"columns": "id, title,n ,s,region"}, *spelled(
            "select", ["id", "title", "n", "s", "region"], [" id", "{r}.TITLE AS title ", "N AS n", "s", "`region`"],
            '["id", "(title) title", "{r}.n -- a number", "s", "region"]')],
        "computed": spelled(
            "select", ["id", "title", "s", "region", "upper(concat(title, 'Ab  c')) AS loud", "n + 1.5D AS more"],
            ["id", "title", "s", "region", "UPPER( concat(`title`,'Ab  c') ) loud", "({r}.N+1.5D) more"]),
        "another text": spelled("select", ["id", "title", "s", "region", "upper(concat(title, 'ab  c')) AS loud"]),
        "whole rows": spelled("select", ["id", "title", "s", "region", "to_json(struct(*)) AS raw"]),
    },
    "row_filter": {
        "none": [{}, {"row_filter": " "}],
        "positive": spelled("row_filter", "n > 0", "( {r}.n>0 ) ", "N > 0 /* some */"),
        "another number": spelled("row_filter", "n > 1"),
    },
    "mapping": {
        "none": [{}, *spelled("mapping", "{}", {"title": {"type": "text"}}, {"s": {"type": "object"}})],
        "keyword": spelled("mapping", {"title": {"type": "keyword", "ignore_above": 9}},
                           '{"title": {"type": "keyword", "ignore_above": "9"}}'),
        "inside": spelled("mapping", {"s.x": {"type": "keyword"}}, {"s": {"properties": {"x": {"type": "keyword"}}}}),
        "copied": spelled("mapping", {"title": {"copy_to": "any"}, "any": {"type": "text"}},
                          {"any": {"type": "text"}, "title": {"type": "text", "copy_to": ["any"]}}),
        "english": [*({"mapping": {"title": {"analyzer": "english", **more}}} for more in ({}, {"type": "text"}))],
        "searched": spelled("mapping", {"title": {"analyzer": "english", "search_analyzer": "whitespace"}}),
    },
    "settings": {
        "none": [{}, {"settings": {}}],
        "seldom": spelled("settings", {"refresh_interval": "7s", "gc_deletes": "2h"},
                          {"index": {"refresh_interval": "7s"}, "index.gc_deletes": "2h"}),
        "window": spelled("settings", {"max_result_window": 20000}, '{"index.max_result_window": "20000"}'),
        "codec": spelled("settings", {"codec": "best_compression"}),
    },
    "places": {"none": [{}, {"routing": ""}], "shards": spelled("routing", "region"),
               "indexes": spelled("index_column", "region")},
    "nest": {
        "none": [{}, {"nest": "{}"}],
        "all": [nested(), nested(select="*", order_by=[]), nested(type="object")],
        "ordered": [nested(select=["name", "s"], order_by="name DESC"),
                    nested(select=["{p}.name", "{p}.s "], order_by=["( {p}.name ) desc"], row_filter="")],
        "by a struct": [nested(select=["s", "name"], order_by=["s", "name"])],
        "nested": [nested(type="nested", select=["name"])],
        "whole rows": [nested(select="to_json(struct({p}.*)) AS raw")],
        "one": [{"select": ["name"], "row_filter": "{p}.place = 0"},
                {"as": "object", "select": '["{p}.name AS name"]', "row_filter": "0={p}.PLACE"}],
        "deep": [nested(select=["name"], nest={"b": {**B, "select": ["b.s", "b.id"]}, "a": {**A, "select": ["a.s"]}})],
    },
}  # fmt: skip
LINKS = ("{p}.root = {r}.id", "{r}.ID={p} . root -- a link", "(`{p}`.root) == {r}.id")
ROWS = (
    "UPDATE {t} SET n = n + 1, region = 'west' WHERE id % 3 = 0",
    "DELETE FROM {t} WHERE id % 5 = 1",
    "INSERT",
    "UPDATE {u} SET name = concat(name, '!') WHERE root % 2 = 0",
    "UPDATE {u} SET root = 3 - root WHERE place = 1 AND root < 3",
)
COLUMNS = (
    *(f"ALTER TABLE {{u}} ALTER COLUMN {name} FIRST" for name in ("s.x", "s.y", "name")),
    *(f"ALTER TABLE {{t}} ALTER COLUMN {name} FIRST" for name in ("s.x", "region")),
    *("ALTER TABLE {t} ADD COLUMN more{#} STRING", "ALTER TABLE {u} ADD COLUMN s.z{#} INT"),
)


def edits(**drawn):
    what = (drawn.get(name, st.just(none)) for name, none in (("meanings", {}), ("rows", ()), ("columns", "")))
    aliases = st.tuples(st.sampled_from(["", "r", "Root"]), st.sampled_from(["", "p"]))
    return st.tuples(*what, st.integers(1, 11), aliases)


SAME, MOVED = edits(), edits(columns=st.sampled_from(COLUMNS))
MEANINGS = st.dictionaries(st.sampled_from(sorted(PARTS)), st.integers(0, 20), min_size=1, max_size=2)
CHANGED = edits(meanings=MEANINGS, rows=st.lists(st.sampled_from(ROWS), max_size=2))
MORE = st.lists(SAME | MOVED | CHANGED, max_size=0 if MANY == 1 else 4)


class Editor:
    """An index file, and its two tables."""

    def __init__(self, spark, config, path):
        self.spark, self.config, self.path, self.number = spark, config, path, 0
        self.tables = {"{t}": config.table, "{u}": f"{config.table}_u"}
        self.meanings = dict.fromkeys(PARTS, "none") | {"select": "all", "nest": "ordered"}
        pair = "STRUCT<y: INT, x: INT>"
        self.sql(f"CREATE TABLE {{t}} (id BIGINT, title STRING, n INT, s {pair}, region STRING) USING iceberg")
        self.sql(f"CREATE TABLE {{u}} (place INT, root BIGINT, name STRING, s {pair}) USING iceberg")
        one, other = (f"named_struct('y', int({key}), 'x', -int({key}))" for key in ("id", "id DIV 6"))
        self.sql(f"INSERT INTO {{t}} SELECT id, concat('title ', id), id % 3, {one}, 'south' FROM range(6)")
        self.sql(f"INSERT INTO {{u}} SELECT id DIV 6, id % 6, 'same', {other} FROM range(12)")

    def sql(self, statement):
        self.number += 1
        if statement == "INSERT":
            row = self.spark.table(self.config.table).where("id = 2")
            row.withColumn("id", F.lit(100 + self.number).cast("long")).writeTo(self.config.table).append()
        else:
            self.spark.sql(named(statement, {**self.tables, "{#}": f"{self.number}"}))

    def write(self, spelling, aliases):
        """Write the file, and load it."""
        root, part = (given or name.split(".")[-1] for given, name in zip(aliases, self.tables.values(), strict=True))
        parts = {part: PARTS[part][meaning] for part, meaning in self.meanings.items()}
        chosen = {part: each[spelling % len(each)] for part, each in parts.items()}
        names = {**self.tables, "{r}.": f"{root}.", "{r}": root, "{p}": part}
        if self.meanings["nest"] != "none":
            link = {"table": "{u}", "on": LINKS[spelling % len(LINKS)], "alias": aliases[1]}
            chosen["nest"] = {"nest": {"parts": {**link, **chosen["nest"]}}}
        elif not aliases[0]:
            names["{r}."] = ""  # a table without an alias has no name in expressions, unless others are nested
        entry = {"table": "{t}", "identifier_columns": "id", "alias": aliases[0]}
        for each in chosen.values():
            entry |= each
        backwards = (lambda pairs: dict(reversed(pairs))) if spelling % 2 else dict
        entry = json.loads(named(json.dumps(entry), names), object_pairs_hook=backwards)
        if spelling % 3 == 1 and "nest" in entry:
            entry["nest"] = json.dumps(entry["nest"]) if entry["nest"] != "{}" else "{}"
        given = {name: getattr(self.config, name) for name in ("opensearch_url", "warehouse", "positions_index")}
        given["catalog_properties"] = dict(self.config.catalog_properties)
        content = {"defaults": given, "indexes": {self.config.index: entry}}
        self.path.write_text(yaml.safe_dump(content, default_flow_style=spelling % 5 == 0, sort_keys=False, width=60))
        return SyncConfig.load(self.path, self.config.index)


def named(text, names):
    for name, other in names.items():
        text = text.replace(name, other)
    return text


def state(opensearch, index):
    """What searches find in an index: documents and their places, mapping and settings."""
    documents = [(*place, without_nulls(source)) for *place, source in placed(opensearch, index)]
    indexes = opensearch.indices.get(index=index).values()
    chosen = ("refresh_interval", "max_result_window", "codec", "number_of_shards", "gc_deletes")
    options = [[each["settings"]["index"].get(name) for name in chosen] for each in indexes]
    return documents, sorted(options, key=str), sorted((each["mappings"]["properties"] for each in indexes), key=str)


@pytest.mark.timeout(6 * 3600)
def it_follows_every_edit_and_none_that_means_the_same(spark, opensearch, make_config, name, tmp_path):
    lived = []

    def live(some, more, chance):
        lived.append(len(some) + len(more))
        index = f"{name}_{len(lived)}"
        config = make_config(table=f"lake.ns.{index}", index=index, positions_index=f"positions-{index}")
        editor = Editor(spark, config, tmp_path / f"{index}.yml")
        try:
            export_table(spark, editor.write(0, ("", "")))
            for drawn in chance.sample([*some, *more], lived[-1]):
                print(f"{len(lived)}: {drawn}", flush=True)
                edit(spark, opensearch, editor, f"{index}-new", *drawn)
        finally:
            for table in editor.tables.values():
                spark.sql(f"DROP TABLE IF EXISTS {table}")
            wanted = f"{index}-*,positions-{index}"
            opensearch.indices.delete(index=wanted, params={"expand_wildcards": "all", "ignore_unavailable": "true"})

    for_examples(live, MANY, some=st.tuples(SAME, MOVED, CHANGED), more=MORE, chance=st.randoms())
    print(f"{len(lived)} files, seed {SEED}")


def edit(spark, opensearch, editor, new_index, meanings, rows, columns, spelling, aliases):
    was = dict(editor.meanings)
    for part, number in meanings.items():
        editor.meanings[part] = sorted(PARTS[part])[number % len(PARTS[part])]
    for statement in filter(None, (*rows, columns)):
        editor.sql(statement)
    config, store = editor.write(spelling, aliases), PositionStore(opensearch, editor.config)
    print(editor.path.read_text(), flush=True)
    before, changed = (
        store.read(),
        {(part, was[part], now) for part, now in editor.meanings.items() if was[part] != now},
    )
    in_place = {("mapping", "english", "searched"), ("mapping", "searched", "english")}
    stays = all(each in in_place or (each[0] == "settings" and "codec" not in each) for each in changed) and not columns
    report, refused = None, None
    try:
        report = sync_changes(spark, config)
    except SchemaChangeError as error:
        refused = error
    assert not (stays and refused), refused
    assert refused or store.read().physical_index == before.physical_index
    if not changed and not rows and not columns:
        assert (report.strategy, store.read()) == ("none", before)
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

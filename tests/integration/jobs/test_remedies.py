"""Whoever follows a remedy literally keeps the index: its documents, their ids and the mapping."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import functions as F

from icecdc_core import export_table, sync_changes
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import IcecdcError, IndexConflictError
from icecdc_core.jobs.setup import check_setup

COLUMNS = "(id BIGINT NOT NULL, title STRING, n INT) USING iceberg TBLPROPERTIES ('format-version' = '2')"
FILL = "INSERT INTO {t} VALUES (1, 'a b', 1), (2, 'c', 2), (3, 'd', 3)"
MAPPING = {"title": {"type": "text", "analyzer": "whitespace"}}
OTHER_IDENTITY = {"identifier_columns": ["title"], "mapping": {}}
EXPORT = r"run the export"
TO_CHANGE = rf"; to change it, {EXPORT} .*, or set on_schema_change=reexport"
ALIAS = r"make the alias '.*' point only to '.*', without filter and routing"


class Index:
    """The index that a remedy must leave as it is, and what the cases do to it."""

    def __init__(self, spark, sql, opensearch, config, indexed):
        self.spark, self.sql, self.opensearch, self.config, self.indexed = spark, sql, opensearch, config, indexed
        self.names = iter(f"c{number}" for number in range(1, 99))

    def create(self, table: str = "{t}") -> None:
        self.sql(f"DROP TABLE IF EXISTS {table}")
        self.sql(f"CREATE TABLE {table} {COLUMNS}")
        self.sql(FILL.replace("{t}", table))

    def insert(self, number: str, title: str) -> None:
        """Insert a row; Spark 4.0 wants a value of each column."""
        last = self.spark.table(self.config.table).orderBy(F.desc("id")).limit(1)
        last.withColumns({"id": F.expr(number), "title": F.lit(title)}).writeTo(self.config.table).append()

    def lose_position(self) -> None:
        self.opensearch.indices.delete(index=self.config.positions_index)

    def lose_index(self) -> None:
        self.opensearch.indices.delete(index=self.physical[0])

    def other(self, **given: Any) -> Any:
        return self.config.replace(index=f"{self.config.index}-{next(self.names)}", **given)

    @property
    def physical(self) -> list[str]:
        return sorted(self.opensearch.indices.get(index=f"{self.config.index}--*"))

    def state(self) -> Any:
        """Its indexes, the documents that readers see, and where its position is."""
        position = PositionStore(self.opensearch, self.config).read()
        exists = self.opensearch.indices.exists_alias(name=self.config.index)
        documents = self.indexed(self.config.index) if exists else None
        return self.physical, documents, position and position.physical_index, position and position.snapshot_id

    def refused(self, job: Callable[..., Any], config: Any) -> IcecdcError:
        before = self.state()
        with pytest.raises(IcecdcError) as refused:
            job(self.spark, config)
        assert self.state() == before, refused.value
        position = {"index": self.config.positions_index, "id": f"position:{config.index}"}
        if self.opensearch.exists(**position):
            assert not self.opensearch.get(**position)["_source"].get("owner"), refused.value
        return refused.value

    def is_whole(self, config: Any) -> None:
        """The index has exactly the rows, under their identifiers, and the mapping that was chosen."""
        sync_changes(self.spark, config)
        rows = {str(row.id): row.asDict() for row in self.sql("SELECT * FROM {t}").collect()}
        (entry,) = self.opensearch.indices.get(index=config.index).values()
        field = entry["mappings"]["properties"]["title"]
        found = self.indexed(config.index), {name: field[name] for name in MAPPING["title"]}
        assert found == (rows, dict(config.mapping["title"]))


def export(index: Index, config: Any, error: IcecdcError) -> Any:
    """Run the export, first with parameters of another identity: they are refused, whatever happened before."""
    refusal = index.refused(export_table, config.replace(**OTHER_IDENTITY))
    assert type(refusal) is IndexConflictError, (error, refusal)
    assert 'identifier_columns=["id"]' in refusal.remedy, refusal
    export_table(index.spark, config)
    return config


def policy(name: str) -> Callable[..., Any]:
    def reexport(index: Index, config: Any, error: IcecdcError) -> Any:
        assert f"{name}=reexport" in error.remedy
        refusal = index.refused(sync_changes, config.replace(**OTHER_IDENTITY, **{name: "reexport"}))
        assert re.search(KEEP, refusal.remedy), (error, refusal)
        assert "reexport" in sync_changes(index.spark, config.replace(**{name: "reexport"})).strategy
        return config

    return reexport


def given(index: Index, config: Any, error: IcecdcError) -> Any:
    """Give the values that the remedy names, to the same job."""
    keep = error.remedy.partition("; to change it, ")[0]
    values = {name: json.loads(value) for name, value in re.findall(r"give (\w+)=(.*?)(?=; |$)", keep)}
    values |= {"row_filter": ""} if "leave row_filter out" in keep else {}
    values |= {"mapping": MAPPING} if "give the mapping that the index was built with" in keep else {}
    assert values, error
    return config.replace(**values)


def alias(index: Index, config: Any, error: IcecdcError) -> Any:
    (physical,) = re.findall("point only to '(.*?)'", error.remedy)
    remove = {"index": "*", "alias": index.config.index, "must_exist": False}
    actions = [{"remove": remove}, {"add": {"index": physical, "alias": index.config.index}}]
    index.opensearch.indices.update_aliases(body={"actions": actions})
    return config


def the_named_table(_: Index, config: Any, error: IcecdcError) -> Any:
    return config.replace(table=re.search(r"give table=(\S+),", error.remedy)[1])


def delete_foreign(index: Index, config: Any, error: IcecdcError) -> Any:
    index.opensearch.indices.delete(index=config.index)
    export_table(index.spark, config)
    return index.config


def identify(index: Index, config: Any, error: IcecdcError) -> Any:
    """Name the columns, then run the export, with replace_index=true because the index exists."""
    named = config.replace(identifier_columns=["id"])
    index.refused(export_table, named)
    export_table(index.spark, named.replace(replace_index=True))
    return named


def expire(index: Index) -> None:
    index.insert("id + 1", "z")
    old = PositionStore(index.opensearch, index.config).read().snapshot_id
    name = index.config.table.removeprefix("lake.")
    index.sql(f"CALL lake.system.expire_snapshots(table => '{name}', snapshot_ids => array({old}))")


def conflict(index: Index) -> None:
    column = next(index.names)
    index.opensearch.indices.put_mapping(index=index.config.index, body={"properties": {column: {"type": "text"}}})
    index.sql(f"ALTER TABLE {{t}} ADD COLUMN {column} INT")
    index.sql(f"UPDATE {{t}} SET {column} = 5")


def hide_a_part(index: Index) -> None:
    filtered = {"index": index.physical[0], "alias": index.config.index, "filter": {"term": {"id": 1}}}
    index.opensearch.indices.update_aliases(body={"actions": [{"add": filtered}]})


def without_identifiers(index: Index) -> Any:
    config = index.other(identifier_columns=[])
    index.insert("7", "y")
    export_table(index.spark, config)
    index.sql("DELETE FROM {t} WHERE id = 7")
    return config


def foreign(index: Index) -> Any:
    config = index.other()
    index.opensearch.indices.create(index=config.index)
    return config


def second_table(index: Index) -> Any:
    table = f"{index.config.table}_two"
    index.create(table)
    return index.config.replace(table=table)


def changed(**values: Any) -> Callable[[Index], Any]:
    return lambda index: index.config.replace(**values)


SCHEMA = f"^{EXPORT} .*, or set on_schema_change=reexport$"
GAP = rf"{EXPORT}.*on_history_gap=reexport|on_history_gap=reexport.*{EXPORT}"
KEEP = r'^give identifier_columns=\["id"\]; give (mapping={.*whitespace.*}|the mapping that the index was built with)$'
ENGLISH = {"mapping": {"title": {"type": "text", "analyzer": "english"}}}
SPEC = rf"^to keep the index as it is, give mapping={{.*whitespace.*}}{TO_CHANGE}$"
FILTER = rf"^to keep the index as it is, leave row_filter out{TO_CHANGE}$"
FOREIGN = "^choose another index name, or delete that index or alias if it is no longer needed$"
START = f"^correct positions_index, or {EXPORT}; replace_index=true drops the documents$"
OTHER_TABLE = r"^give table=\S+, or give the index of \S+ another name$"
GONE = f"^{EXPORT} again; it builds a new index behind the alias$"
IDENTIFY = "^name the columns .* in identifier_columns, .*; then run the export, with replace_index=true if the index"
# What happens, the job that it stops and its parameters, the remedy, and ways to follow it.
CASES = {
    "replaced": (Index.create, sync_changes, changed(), GAP, [export]),
    "expired": (expire, sync_changes, changed(), GAP, [policy("on_history_gap")]),
    "another selection": (None, sync_changes, changed(row_filter="id < 3"), FILTER, [given]),
    "another spec": (None, sync_changes, changed(**ENGLISH), SPEC, [given, policy("on_schema_change")]),
    "another identity": (None, export_table, changed(**OTHER_IDENTITY), KEEP, [given]),
    "another identity, no position": (Index.lose_position, sync_changes, changed(**OTHER_IDENTITY), KEEP, [given]),
    "start_from, no position": (Index.lose_position, sync_changes, changed(start_from="latest"), START, [export]),
    "another field": (conflict, sync_changes, changed(), SCHEMA, [export, policy("on_schema_change")]),
    "a foreign index": (None, export_table, foreign, FOREIGN, [delete_foreign]),
    "another table": (None, export_table, second_table, OTHER_TABLE, [the_named_table]),
    "the index is gone": (Index.lose_index, sync_changes, changed(), GONE, [export]),
    "the alias has a filter": (hide_a_part, sync_changes, changed(), f"^{ALIAS}", [alias]),
    "no identifiers": (None, sync_changes, without_identifiers, IDENTIFY, [identify]),
}
FOUND_BY_THE_SETUP_CHECK = ("the index is gone", "the alias has a filter", "start_from, no position")


@pytest.fixture
def index(spark, sql, opensearch, make_config, indexed):
    index = Index(spark, sql, opensearch, make_config(mapping=MAPPING), indexed)
    index.create()
    export_table(spark, index.config)
    yield index
    sql("DROP TABLE IF EXISTS {t}_two")


def it_leaves_the_index_right_for_whoever_follows_it(index):
    for name, (happen, job, parameters, remedy, ways) in CASES.items():
        for way in ways:
            if happen:
                happen(index)
            config = parameters(index)
            error = index.refused(job, config)
            assert re.search(remedy, error.remedy), (name, error.remedy)
            if name in FOUND_BY_THE_SETUP_CHECK:
                assert [str(each) for each in check_setup(index.spark, config).errors] == [str(error)]
            index.is_whole(way(index, config, error))
            if index.config.index == config.index and config != index.config:
                export_table(index.spark, index.config)
                index.is_whole(index.config)

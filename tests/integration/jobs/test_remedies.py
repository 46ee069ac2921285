"""Whoever follows a remedy literally keeps the index: its documents, their ids and the mapping."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import icecdc_core
from icecdc_core import export_table, replay_dead_letters, sync_changes, validate_table
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import ConfigError, IcecdcError, IndexConflictError

COLUMNS = "(id BIGINT NOT NULL, title STRING, n INT) USING iceberg TBLPROPERTIES ('format-version' = '2')"
FILL = "INSERT INTO {t} VALUES (1, 'a b', 1), (2, 'c', 2), (3, 'd', 3)"
MAPPING = {"title": {"type": "text", "analyzer": "whitespace"}}
OTHER_IDENTITY = {"identifier_columns": ["title"], "mapping": {}}
EXPORT = r"run the export"
TO_CHANGE = rf"; to change it, {EXPORT} .*, or set on_schema_change=reexport"
ALIAS = r"make the alias '.*' point only to '.*', without filter and routing"
ROOMS = ("commits/preconditions.py", "opensearch/indexes.py", "runs/plan.py", "runs/run.py")
# These have tests of their own.
RACES = ("Another program has just created", "Another run has moved the alias")


class Index:
    """The index that a remedy must leave as it is, and what the cases do to it."""

    def __init__(self, spark, sql, opensearch, config, indexed):
        self.spark, self.sql, self.opensearch, self.config, self.indexed = spark, sql, opensearch, config, indexed
        self.names = iter(f"c{number}" for number in range(1, 99))
        self.column = "n"

    def create(self, table: str = "{t}") -> None:
        self.sql(f"DROP TABLE IF EXISTS {table}")
        self.sql(f"CREATE TABLE {table} {COLUMNS}")
        self.sql(FILL.replace("{t}", table))

    def other(self, **given: Any) -> Any:
        """The same job for an index of its own."""
        return self.config.replace(index=f"{self.config.index}-{next(self.names)}", **given)

    @property
    def physical(self) -> list[str]:
        """The indexes of this name, whether readers see them or not."""
        return sorted(self.opensearch.indices.get(index=f"{self.config.index}--*"))

    def point_alias(self, *actions: dict[str, Any]) -> None:
        self.opensearch.indices.update_aliases(body={"actions": list(actions)})

    def add_alias(self, index: str, **options: Any) -> None:
        self.point_alias({"add": {"index": index, "alias": self.config.index, **options}})

    def state(self) -> Any:
        """Its indexes, the documents that readers see, and where its position is."""
        position = PositionStore(self.opensearch, self.config).read()
        exists = self.opensearch.indices.exists_alias(name=self.config.index)
        documents = self.indexed(self.config.index) if exists else None
        return self.physical, documents, position and position.committed_index, position and position.snapshot_id

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
        where = config.row_filter or "true"
        rows = {str(row.id): row.asDict() for row in self.sql(f"SELECT * FROM {{t}} WHERE {where}").collect()}
        (entry,) = self.opensearch.indices.get(index=config.index).values()
        field = entry["mappings"]["properties"]["title"]
        found = self.indexed(config.index), {name: field[name] for name in MAPPING["title"]}
        assert found == (rows, dict(config.mapping["title"]))


class Case(NamedTuple):
    """How an error comes about, its remedy, and each way to follow it."""

    name: str
    happens: Callable[[Index], None]
    job: Callable[..., Any]
    given: Callable[[Index], Any]
    remedy: str
    ways: tuple[Callable[[Index, Any, IcecdcError], Any], ...]


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
        index.refused(sync_changes, config.replace(**OTHER_IDENTITY, **{name: "reexport"}))
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
    config = config.replace(**values)
    sync_changes(index.spark, config)
    export_table(index.spark, config)
    return config


def alias(index: Index, config: Any, error: IcecdcError) -> Any:
    """Make the alias point only to the index that the remedy names."""
    (physical,) = re.findall("point only to '(.*?)'", error.remedy)
    index.point_alias(
        {"remove": {"index": "*", "alias": index.config.index, "must_exist": False}},
        {"add": {"index": physical, "alias": index.config.index}},
    )
    return config


def another_index(index: Index, config: Any, error: IcecdcError) -> Any:
    export_table(index.spark, index.other(table=config.table))
    return index.config


def the_named_table(index: Index, config: Any, error: IcecdcError) -> Any:
    (table,) = re.findall(r"give table=(\S+),", error.remedy)
    return config.replace(table=table)


def delete_foreign(index: Index, config: Any, error: IcecdcError) -> Any:
    index.opensearch.indices.delete(index=config.index)
    export_table(index.spark, config)
    return index.config


def start(value: Callable[[IcecdcError], str]) -> Callable[..., Any]:
    def follow(index: Index, config: Any, error: IcecdcError) -> Any:
        assert type(error) is ConfigError
        assert PositionStore(index.opensearch, config).read() is None
        sync_changes(index.spark, config.replace(start_from=value(error)))
        return index.config

    return follow


def identify(index: Index, config: Any, error: IcecdcError) -> Any:
    """Name the columns, then run the export, with replace_index=true because the index exists."""
    named = config.replace(identifier_columns=["id"])
    index.refused(export_table, named)
    export_table(index.spark, named.replace(replace_index=True))
    return named


def identify_on_the_table(index: Index, config: Any, error: IcecdcError) -> Any:
    index.sql("ALTER TABLE {t} SET IDENTIFIER FIELDS id")
    export_table(index.spark, config.replace(replace_index=True))
    index.is_whole(config)
    index.sql("ALTER TABLE {t} DROP IDENTIFIER FIELDS id")
    return index.config


def expire(index: Index) -> None:
    index.sql("INSERT INTO {t} (id, title) SELECT max(id) + 1, 'z' FROM {t}")
    old = PositionStore(index.opensearch, index.config).read().snapshot_id
    name = index.config.table.removeprefix("lake.")
    index.sql(f"CALL lake.system.expire_snapshots(table => '{name}', snapshot_ids => array({old}))")


def forget_earlier_snapshots(index: Index) -> None:
    expire(index)
    export_table(index.spark, index.config)


def empty(index: Index) -> None:
    index.create()
    export_table(index.spark, index.config)
    index.sql(f"CREATE OR REPLACE TABLE {{t}} {COLUMNS}")


def rename(index: Index) -> None:
    column = next(index.names)
    index.sql(f"ALTER TABLE {{t}} RENAME COLUMN {index.column} TO {column}")
    index.column = column


def conflict(index: Index) -> None:
    column = next(index.names)
    index.opensearch.indices.put_mapping(index=index.config.index, body={"properties": {column: {"type": "text"}}})
    index.sql(f"ALTER TABLE {{t}} ADD COLUMN {column} INT")
    index.sql(f"UPDATE {{t}} SET {column} = 5")


def lose_position(index: Index) -> None:
    index.opensearch.indices.delete(index=index.config.positions_index)


def foreign(index: Index) -> Any:
    config = index.other()
    index.opensearch.indices.create(index=config.index)
    return config


def without_identifiers(index: Index) -> Any:
    config = index.other(identifier_columns=[])
    index.sql("INSERT INTO {t} (id, title) VALUES (7, 'y')")
    export_table(index.spark, config)
    index.sql("DELETE FROM {t} WHERE id = 7")
    return config


TEMPLATES = {"disabled": {"enabled": False}, "less": {"excludes": ["n"]}}


def with_template(name: str) -> Callable[[Index], Any]:
    """An index template that would leave documents of the next index without a part of their row."""

    def given(index: Index) -> Any:
        config = index.other()
        template = {"mappings": {"_source": TEMPLATES[name]}}
        body = {"index_patterns": [f"{config.index}--*"], "priority": 900, "template": template}
        index.opensearch.indices.put_index_template(name=config.index, body=body)
        return config

    return given


def remove_template(index: Index, config: Any, error: IcecdcError) -> Any:
    assert type(error) is ConfigError
    index.opensearch.indices.delete_index_template(name=config.index)
    export_table(index.spark, config)
    index.is_whole(config)
    return index.config


def nothing(index: Index) -> None:
    pass


def same(index: Index) -> Any:
    return index.config


def changed(**values: Any) -> Callable[[Index], Any]:
    return lambda index: index.config.replace(**values)


def map_as_long(index: Index, config: Any, error: IcecdcError) -> Any:
    config = config.replace(mapping={**MAPPING, "id": {"type": "long"}})
    export_table(index.spark, config)
    return config


def second_table(index: Index) -> Any:
    table = f"{index.config.table}_two"
    index.create(table)
    return index.config.replace(table=table)


SCHEMA = f"^{EXPORT} .*, or set on_schema_change=reexport$"
GAP = rf"{EXPORT}.*on_history_gap=reexport|on_history_gap=reexport.*{EXPORT}"
GAP_WAYS, SCHEMA_WAYS = (export, policy("on_history_gap")), (export, policy("on_schema_change"))
KEEP = r'^give identifier_columns=\["id"\]; give (mapping={.*whitespace.*}|the mapping that the index was built with)$'
ENGLISH = {"mapping": {"title": {"type": "text", "analyzer": "english"}}}
CASES = (
    Case("replaced", Index.create, sync_changes, same, GAP, GAP_WAYS),
    Case("expired", expire, sync_changes, same, GAP, GAP_WAYS),
    Case("emptied", empty, sync_changes, same, GAP, GAP_WAYS),
    Case("refilled", Index.create, sync_changes, same, GAP, GAP_WAYS[:1]),
    Case(
        "another selection",
        nothing,
        sync_changes,
        changed(row_filter="id < 3"),
        rf"^to keep the index as it is, leave row_filter out{TO_CHANGE}$",
        (given, *SCHEMA_WAYS),
    ),
    Case(
        "another spec",
        nothing,
        sync_changes,
        changed(**ENGLISH),
        rf"^to keep the index as it is, give mapping={{.*whitespace.*}}{TO_CHANGE}$",
        (given, *SCHEMA_WAYS),
    ),
    Case(
        "another identity, sync",
        nothing,
        sync_changes,
        changed(identifier_columns=["title"]),
        r'^give identifier_columns=\["id"\]$',
        (given,),
    ),
    Case("another identity, export", nothing, export_table, changed(**OTHER_IDENTITY), KEEP, (given,)),
    Case(
        "another identity, policy",
        nothing,
        sync_changes,
        changed(**OTHER_IDENTITY, on_schema_change="reexport"),
        KEEP,
        (given,),
    ),
    Case("another identity, no position", lose_position, sync_changes, changed(**OTHER_IDENTITY), KEEP, (given,)),
    Case("another schema", rename, sync_changes, same, SCHEMA, SCHEMA_WAYS),
    Case("another field", conflict, sync_changes, same, SCHEMA, SCHEMA_WAYS),
    Case(
        "a foreign index",
        nothing,
        export_table,
        foreign,
        "^choose another index name, or delete that index or alias if it is no longer needed$",
        (another_index, delete_foreign),
    ),
    Case(
        "another table",
        nothing,
        export_table,
        second_table,
        r"^give table=\S+, or give the index of \S+ another name$",
        (the_named_table, another_index),
    ),
    Case("another table, no position", lose_position, sync_changes, second_table, "^give table=", (the_named_table,)),
    Case(
        "the index is gone",
        lambda x: x.opensearch.indices.delete(index=x.physical[0]),
        sync_changes,
        same,
        f"^{EXPORT} again; it builds a new index behind the alias$",
        (export,),
    ),
    Case(
        "the alias is gone",
        lambda x: x.opensearch.indices.delete_alias(index=x.physical[0], name=x.config.index),
        sync_changes,
        same,
        f"^{ALIAS}",
        (alias,),
    ),
    Case(
        "the alias has two indexes",
        lambda x: x.add_alias(foreign(x).index),
        sync_changes,
        same,
        f"^{ALIAS}",
        (alias,),
    ),
    Case(
        "the alias has a filter",
        lambda x: x.add_alias(x.physical[0], filter={"term": {"id": 1}}),
        sync_changes,
        same,
        f"^{ALIAS}",
        (alias,),
    ),
    Case(
        "no position",
        nothing,
        validate_table,
        Index.other,
        f"^{EXPORT} first; check `index` and `positions_index`$",
        (lambda x, config, error: export_table(x.spark, config) and x.config,),
    ),
    *(
        Case(
            f"start_from={wrong}",
            forget_earlier_snapshots,
            sync_changes,
            lambda x, wrong=wrong: x.other(start_from=wrong),
            "^give a snapshot that the table has, a later time, or latest; without it the sync exports the table$",
            ways,
        )
        for wrong, ways in (
            ("1", (start(lambda error: re.findall(r"the oldest is (\d+)", error.message)[0]), start(lambda _: ""))),
            ("2001-01-01T00:00:00Z", (start(lambda _: "latest"), start(lambda _: "2100-01-01T00:00:00Z"))),
        )
    ),
    *(
        Case(
            f"a template: {name}",
            nothing,
            export_table,
            with_template(name),
            "^remove `_source` from the template for '.*--.*'",
            (remove_template,),
        )
        for name in TEMPLATES
    ),
    Case(
        "a mapping that does not fit",
        nothing,
        export_table,
        lambda x: x.other(mapping={**MAPPING, "id": {"type": "ip"}}),
        "^map the fields as types that read the columns, or cast the columns in select$",
        (map_as_long,),
    ),
    Case(
        "a dry run of a job that only writes",
        nothing,
        replay_dead_letters,
        changed(dry_run=True),
        "^leave dry_run out, or run the status",
        (lambda x, config, error: replay_dead_letters(x.spark, config.replace(dry_run=False)) and x.config,),
    ),
    Case(
        "no identifiers",
        nothing,
        sync_changes,
        without_identifiers,
        "^name the columns .* in identifier_columns, or set them on the table: ALTER TABLE .* FIELDS .*; "
        "then run the export, with replace_index=true if the index exists",
        (identify, identify_on_the_table),
    ),
)


@pytest.fixture
def index(spark, sql, opensearch, make_config, indexed):
    """A table of three rows and its index, whose title has an analyzer."""
    index = Index(spark, sql, opensearch, make_config(mapping=MAPPING), indexed)
    index.create()
    export_table(spark, index.config)
    yield index
    sql("DROP TABLE IF EXISTS {t}_two")


def errors_with_remedy() -> Iterator[tuple[str, range]]:
    """File and lines of every error with a remedy in the rooms that decide about an index."""
    for name in ROOMS:
        text = (Path(icecdc_core.__file__).parent / name).read_text()
        for node in ast.walk(ast.parse(text)):
            with_remedy = isinstance(node, ast.Call) and any(each.arg == "remedy" for each in node.keywords)
            if with_remedy and not any(race in ast.unparse(node.args[0]) for race in RACES):
                yield name, range(node.lineno, node.end_lineno + 1)


@pytest.fixture
def made(monkeypatch):
    """File and line where each error is made."""
    found, construct = set(), IcecdcError.__init__

    def recorded(error, *args, **given):
        construct(error, *args, **given)
        frame = sys._getframe(1)
        while frame.f_code.co_name == "__init__":
            frame = frame.f_back
        found.add(("/".join(Path(frame.f_code.co_filename).parts[-2:]), frame.f_lineno))

    monkeypatch.setattr(IcecdcError, "__init__", recorded)
    return found


class DescribeARemedy:
    def it_leaves_the_index_right_for_whoever_follows_it(self, index, made, monkeypatch):
        for case in CASES:
            for way in case.ways:
                case.happens(index)
                config = case.given(index)
                error = index.refused(case.job, config)
                assert re.search(case.remedy, error.remedy), (case.name, error.remedy)
                index.is_whole(way(index, config, error))
                if index.config.index == config.index and config != index.config:
                    export_table(index.spark, index.config)
                index.is_whole(index.config)
        self.of_a_begun_export(index, monkeypatch)
        met = {
            (name, lines) for name, lines in errors_with_remedy() for file, at in made if file == name and at in lines
        }
        assert set(errors_with_remedy()) - met == set()

    def of_a_begun_export(self, index, monkeypatch):
        """The index of an export is deleted under it."""
        from icecdc_core.jobs import export as module

        config, write = index.other(), module.write_batch

        def delete_behind(run, lock, *rest):
            written = write(run, lock, *rest)
            index.opensearch.indices.delete(index=lock.position.batch.physical_index)
            return written

        with monkeypatch.context() as patched:
            patched.setattr(module, "write_batch", delete_behind)
            error = index.refused(export_table, config)
        assert error.remedy == f"{EXPORT} again; it starts over with a new index"
        export_table(index.spark, config)
        index.is_whole(config)

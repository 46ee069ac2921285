"""A run of a job on an index: the instrumented run with the table, the OpenSearch client and the positions."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from opensearchpy import OpenSearch
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from icecdc_core.columns import quoted
from icecdc_core.commits.position import Position
from icecdc_core.commits.preconditions import check_identity, check_preconditions
from icecdc_core.commits.store import IndexLock, PositionStore
from icecdc_core.config import SyncConfig
from icecdc_core.documents.mapping import index_mapping
from icecdc_core.documents.nested_documents import TreeProjection
from icecdc_core.documents.nested_tables import States, open_tree
from icecdc_core.documents.spec import SPEC_KEYS, spec_changes, stored_spec
from icecdc_core.errors import ConfigError, IcecdcError, IndexConflictError, IndexNotFoundError, TableLockedError
from icecdc_core.opensearch import indexes
from icecdc_core.opensearch.client import Connection, typed_errors, without_retries
from icecdc_core.opensearch.index_settings import check_settings
from icecdc_core.opensearch.indexes import icecdc_meta, indexes_behind, require_index_of_table, uuid_of, write_alias
from icecdc_core.reporting.instrumentation import JobRun
from icecdc_core.reporting.reports import RunReport
from icecdc_core.runs.nested import open_nested
from icecdc_core.table.failures import spark_errors
from icecdc_core.table.select import ALIAS, example_rows
from icecdc_core.table.source import Source, open_source
from icecdc_core.table.vectors import open_embeddings

_NO_WORDS: dict[str, Any] = {"select": [], "columns": [], "row_filter": "", "nest": {}}
"""What of a selection has more than one spelling, as it is if nothing was chosen."""


class Run(JobRun["SyncConfig"]):
    client: OpenSearch
    positions: PositionStore
    _needs_history: bool

    def _open(self) -> None:
        self.client = connect(self.config)
        self._resources.callback(self.client.close)
        self.positions = PositionStore(self.client, self.config)

    @contextmanager
    def stage(self, name: str, doing: Callable[[], str] | None = None) -> Iterator[None]:
        """Time a stage; failures of Spark and OpenSearch inside it become typed errors."""
        tables = self.opened_source.tables if self.opened_source else ()
        with super().stage(name, doing), typed_errors(self.config, name), spark_errors(self.config, *tables):
            yield

    def look(self, needs_history: bool = True) -> tuple[Position, Source]:
        """Read the position, then open the table: only in this order does the table know what the position names."""
        self._needs_history = needs_history
        return self._look_with(self.positions.read())

    def look_again(self, lock: IndexLock) -> Source:
        """Open the table again under the lock, where no other run moves the position."""
        with self.stage("check"):
            return self._look_with(lock.position)[1]

    def _look_with(self, position: Position | None) -> tuple[Position, Source]:
        if self.opened_source is not None:
            self.opened_source.release()
        source = self.opened_source = open_indexable_source(self.spark, self.config, self._needs_history, position)
        self._resources.callback(source.release)
        if position is None:
            position = Position(self.config.index, self.config.table, source.metadata.table_uuid)
        elif not self.config.replace_index:
            require_index_of_table(self.config, position.table)
        return position, source

    def require_position(self, position: Position, source: Source, needs_history: bool = True) -> None:
        if not position.exists:
            raise IndexNotFoundError(
                f"The index '{self.config.index}' has no position: nothing was exported or synced to it",
                subject="index",
                value=self.config.index,
                remedy="run the export first; check `index` and `positions_index`",
            )
        require_index_of_table(self.config, position.table)  # whatever `replace_index` allows an export
        require_readable_index(self.client, position)
        if needs_history and (error := check_preconditions(position, source)) is not None:
            raise error

    def confirm_readers_indexes(self, lock: IndexLock) -> frozenset[str]:
        """Return the physical indexes that readers see, from a moment at which this run certainly held the lock."""
        with typed_errors(self.config, "reading the alias"):
            seen = frozenset(indexes_behind(self.client, self.config.index))
        lock.write(lock.position)  # it shows that the lock was still held
        return seen

    @contextmanager
    def lock(self, position: Position, source: Source) -> Iterator[tuple[IndexLock, Source]]:
        """Lock the index against other runs; yield the lock, and the table as it knows what the position names."""
        lock = self.positions.lock(self.config.table, source.metadata.table_uuid, self.run_id)
        try:
            if lock.position.begun_rollback:
                self.finish_rollback(lock)
            # Another run that wrote the position since the look may have read newer snapshots.
            yield lock, self.look_again(lock) if lock.position != position else source
        finally:
            lock.release()

    def finish_rollback(self, lock: IndexLock) -> None:
        """Point readers back, then the position; a rollback to an index that is gone is forgotten."""
        begun, kept, over = lock.position, lock.position.earlier, lock.batch.over
        assert kept is not None, "a rollback is begun only with an index to go back to"
        with typed_errors(self.config, "the rollback"):
            found = self.client.indices.get(index=f"{begun.index}--*", params={"expand_wildcards": "all"})
            left = sorted(indexes.epochs_of(begun.index, found).keys() - kept.uuids)
            seen = self.confirm_readers_indexes(lock)
            if kept.physical_index not in seen:
                if not (seen and indexes.is_intact(self.client, kept.uuids)):
                    lock.write(replace(begun, batch=over))
                    return
                indexes.publish_again(self.client, self.config, kept.physical_index, kept.uuids, seen, left)
            entry = {"run_id": self.run_id, "seconds": self.seconds, "strategy": "rollback"}
            lock.commit(replace(kept, epoch=begun.epoch), entry, kept.batch)
            for name in left:
                indexes.drop_unless_read(self.client, self.config, name)

    def report(self, kind: str, start: int | None, end: int | None, strategy: str, **found: Any) -> RunReport:
        found |= {"run_id": self.run_id, "seconds": self.seconds, "stage_seconds": self.stage_seconds}
        return RunReport(kind, self.config.table, self.config.index, start, end, strategy=strategy, **found)


def require_readable_index(client: OpenSearch, position: Position) -> None:
    """Check that a committed index exists and that readers see all of it through the alias."""
    index, exported = position.index, position.begun_export
    if position.begun_rollback:
        what, remedy = f"A rollback of '{index}' is not finished", "run it again or a sync: both finish it"
        raise TableLockedError(what, subject="index", value=index, remedy=remedy)
    begun = position.batch.indexes if exported and position.batch else position.every_index
    seen = indexes_behind(client, index)
    uuids = {name: uuid for name, uuid in position.indexes.items() if uuid}
    committed = {position.physical_index: position.index_uuid, **uuids}

    def is_there(name: str, uuid: str) -> bool:
        if name not in seen:
            return name in client.indices.get(index=f"{index}--*", params={"expand_wildcards": "all"})
        return write_alias(name) in seen[name]["aliases"] and uuid in ("", uuid_of(seen[name]))

    for missing in sorted(name for name, uuid in committed.items() if not is_there(name, uuid)):
        raise IndexNotFoundError(
            f"The index '{missing}' behind '{index}' is gone: it was deleted, or created again",
            subject="index",
            value=index,
            remedy="run the export again; it builds a new index behind the alias",
        )
    # A filter or a routing of an alias hides a part of its index from readers.
    narrowed = any({"filter", "search_routing"} & entry["aliases"].get(index, {}).keys() for entry in seen.values())
    is_committed = committed.keys() <= seen.keys() <= {*committed, *begun}
    if not (is_committed or seen.keys() == {exported, *begun}) or narrowed:
        found = f"only a part of {sorted(seen)}" if narrowed else f"{sorted(seen)}" if seen else "nothing: it is gone"
        wanted = ", ".join(f"'{name}'" for name in sorted(committed))
        kind = IndexConflictError if seen else IndexNotFoundError
        raise kind(
            f"The alias '{index}' must show readers {wanted}, and shows {found}",
            subject="index",
            value=index,
            remedy=f"{f'delete the index {index} if nobody needs it, then ' if index in seen else ''}make the alias "
            f"'{index}' point only to {wanted}, without filter and routing (POST /_aliases)",
        )


def require_identity(client: OpenSearch, config: SyncConfig, position: Position, source: Source) -> None:
    """Refuse an export that would give the existing index another identity, unless ``replace_index`` allows it."""
    # A begun export of the same selection was allowed when it began.
    resumed = position.batch if position.begun_export else None
    if config.replace_index or (resumed is not None and resumed.selection == source.stored_selection):
        return
    # Position and index both know the identity, so one of them may be lost.
    stored = [{"table": position.table, **position.selection}] if position.exists else []
    with typed_errors(config, "reading the alias"):
        stored += [icecdc_meta(entry) for entry in indexes_behind(client, config.index).values()]
    for each in stored:
        check_identity(position, each, source)


def require_no_documents(client: OpenSearch, config: SyncConfig, position: Position) -> None:
    """Refuse to begin with an empty index in place of one with documents, whose position may only be lost."""
    if position.exists or position.begun_export or config.start_point is None or config.replace_index:
        return
    with typed_errors(config, "counting documents"):
        seen = sorted(indexes_behind(client, config.index))
        if not seen:
            return
        client.indices.refresh(index=seen)
        if client.count(index=seen)["count"]:
            raise IndexConflictError(
                f"'{config.index}' has documents and no position, and start_from would begin with an empty index",
                subject="start_from",
                value=str(config.start_point),
                remedy="correct positions_index, or run the export; replace_index=true drops the documents",
            )


def refuse_dry_run(config: SyncConfig, what: str, instead: str) -> None:
    if config.dry_run:
        raise ConfigError(what, subject="dry_run", value=True, remedy=f"leave dry_run out, or run {instead}")


def open_indexable_source(
    spark: SparkSession, config: SyncConfig, needs_history: bool = True, position: Position | None = None
) -> Source:
    """Open the table as `open_source` does, and check that documents can contain its columns."""
    check_settings(config.settings)
    source = open_nested(open_source(spark, config, needs_history=needs_history), config, needs_history)
    source = open_embeddings(source, config)
    index_mapping(source.schema, config.full_mapping, config.pipeline_fields)
    spec = stored_spec(config.full_mapping, config.settings)
    source = replace(source, spec=spec, number_of_shards=config.number_of_shards)
    return source if position is None else _in_known_words(source, config, position)


def _in_known_words(source: Source, config: SyncConfig, position: Position) -> Source:
    """Return a source whose selection has the words of the position, where its own words mean the same."""
    known = position.batch.selection if position.batch and position.begun_export else position.selection
    given = source.stored_selection
    if not spec_changes(known, given, (), source.schema, source.number_of_shards):
        source = replace(source, spec={name: known[name] for name in SPEC_KEYS if name in known})
    known, given = ({name: each[name] for name in each.keys() - SPEC_KEYS} for each in (known, given))
    if known != given and {**known, **_NO_WORDS} == {**given, **_NO_WORDS}:
        with suppress(IcecdcError, PySparkException, KeyError):  # the known words may not fit today's tables
            one, other = (_documents_query(source, config, each) for each in (known, given))
            if one.schema == other.schema and one.sameSemantics(other):
                return replace(source, known_selection=known)
    return source


def _documents_query(source: Source, config: SyncConfig, selection: Mapping[str, Any]) -> DataFrame:
    """The documents of a selection, from tables without rows."""
    words = {name: selection.get(name, none) for name, none in _NO_WORDS.items()}
    words["alias"], select = source.alias, [*words.pop("select")]
    if select and select[0].startswith(ALIAS):
        words["alias"] = select.pop(0).removeprefix(ALIAS)
    config = config.replace(select=select, embed={}, **words)
    schemas = {table.name: table.schema() for table in source.tables}
    unreadable = {table.name: table.unreadable for table in source.tables}
    tree = open_tree(source.table.spark, config, schemas, source.identifier_columns, unreadable)
    states = States({name: example_rows(source.table.spark, each)[0] for name, each in schemas.items()}, whole=True)
    projection = TreeProjection.of(tree, states)
    return projection.apply(states.rows(tree.root.relation).select(*map(quoted, projection.columns)))


def connect(config: SyncConfig) -> OpenSearch:
    """Return a client of a cluster that answers now; it waits for one that goes away later."""
    client = Connection.of(config).client(retry_seconds=config.retry_timeout_seconds)
    try:
        with typed_errors(config, "the first request"), without_retries(client):
            client.info()
    except BaseException:
        client.close()
        raise
    return client

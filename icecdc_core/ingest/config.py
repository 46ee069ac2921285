"""`IngestConfig`: every parameter of the ingest, typed and documented; one error reports all problems."""

import json
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from icecdc_core.config import values
from icecdc_core.config.index_file import INGESTS, load_configurations
from icecdc_core.config.model import (
    AS_TEXTS,
    Bytes,
    Count,
    LowerCase,
    Names,
    OptionalTableName,
    OptionalUrl,
    ParameterModel,
    PathText,
    Seconds,
    SecretReference,
    Text,
    TextMapping,
    WithoutSecrets,
    problems_error,
)
from icecdc_core.errors import ConfigError
from icecdc_core.quoting import quoted
from icecdc_core.secrets import Properties, resolve

_SERVER = r"[^\s/@,]+:\d+"
EPOCH_UNITS = {"days": 1, "seconds": 86_400, "millis": 86_400_000, "micros": 86_400 * 10**6, "nanos": 86_400 * 10**9}
"""How many of each unit a day has."""
_TRANSFORM = (
    r"^((?P<time>year|month|day|hour)s?\((?P<of>[^(),]+)\)"
    r"|(?P<sized>bucket|truncate)\((?P<width>[1-9]\d{0,8}), *(?P<by>[^(),]+)\)|(?P<plain>[^(),]+))$"
)
_OFFSETS = TypeAdapter(dict[str, dict[Annotated[int, Field(ge=0, lt=2**31)], Annotated[int, Field(ge=0, lt=2**63)]]])
# The delivery guarantee depends on them, or Spark does.
_OURS = (
    *("bootstrap.servers", "isolation.level", "group.id", "auto.offset.reset", "enable.auto.commit"),
    *("key.deserializer", "value.deserializer", "interceptor.classes"),
)


def join_servers(value: object) -> object:
    text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
    return re.sub(r"\s*,\s*", ",", text.strip()) if isinstance(text, str) else text


def parse_client_options(value: object) -> Properties:
    """Return Kafka client properties, without the prefix `kafka.` that Spark uses."""
    options = {key.removeprefix("kafka."): text for key, text in values.parse_properties(value).items()}
    if reserved := [key for key in _OURS if key in options]:
        remedy = "leave it out, or use the other parameters instead"
        raise values.parameter_problem(f"sets {', '.join(reserved)} (value not shown)", remedy, show=False)
    return Properties(options)


def split_transforms(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.startswith("["):
        return values.parse_json(value, "a JSON array", 'write ["days(ts)","region"] or days(ts), region')
    return re.split(r"\s*,\s*(?![^()]*\))", value)


def parse_transform(text: str) -> tuple[str, int, str]:
    """Return the name of a partition transform ("" for the plain value), its width (0 for none) and its column."""
    match = re.match(_TRANSFORM, text)
    assert match is not None
    column = (match["of"] or match["by"] or match["plain"]).strip()
    return match["time"] or match["sized"] or "", int(match["width"] or 0), column


def parse_routes(value: object) -> Properties:
    """Return the regular expression of each table; Java checks them when the ingest starts."""
    given = values.parse_properties(value)
    for table, pattern in given.items():
        values.split_table_name(table)
        if not pattern:
            remedy = "give a regular expression for each table, such as order.*"
            raise values.parameter_problem(f"has no expression for {table}", remedy)
    return given


def parse_epoch_units(value: object) -> Properties:
    """Return the unit of each column's numbers; `*` stands for all columns."""
    given = values.parse_properties(value)
    for column, unit in given.items():
        if unit not in EPOCH_UNITS:
            raise values.parameter_problem(f"has another unit for {column}", f"use {', '.join(EPOCH_UNITS)}")
    return given


def parse_tables(value: object) -> object:
    entries = values.parse_json_object(value)
    remedy = 'give each table its parameters, such as {"lake.shop.orders":{"mode":"upsert"}}'
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise values.parameter_problem("has an entry that is no object of parameters", remedy)
    return entries


def parse_starting_offsets(value: object) -> object:
    text = json.dumps(value, default=str) if isinstance(value, Mapping) else str(value)
    if text.startswith("{"):
        parse_offsets(text)
    elif isinstance(values.parse_start_point(text), int):
        remedy = "write earliest, latest, an ISO timestamp, or JSON: topic to partition to offset"
        raise values.parameter_problem("is a number", remedy)
    return text.lower() if text.lower() in ("earliest", "latest") else text


def parse_offsets(text: str) -> dict[str, dict[int, int]]:
    """Return offsets from JSON as Spark writes it: topic to partition to next offset."""
    try:
        return _OFFSETS.validate_json(text)
    except ValidationError:
        raise values.parameter_problem("is not JSON of offsets", 'write {"topic":{"0":42,"1":0}}') from None


def quoted_table(name: str) -> str:
    """Return the table's name with every part back-quoted; "" for none."""
    return ".".join(quoted(part) for part in values.split_table_name(name)) if name else ""


OWN_TABLES = "icecdc_"
"""How the names of icecdc's own tables begin, those of the sync included: in any case, records cannot name one."""
LOG_TABLE, DEAD_LETTER_TABLE = f"{OWN_TABLES}ingest_log", f"{OWN_TABLES}ingest_dead_letters"
DELETES_TABLE = f"{OWN_TABLES}ingest_deletes"

OF_A_TABLE = (
    *("mode", "identifier_columns", "ordering_column", "metadata_columns"),
    *("column_case", "unknown_fields", "evolve_schema", "auto_create", "partition_by", "table_properties"),
    *("sort_columns", "distribution", "target_file_bytes", "compact_min_files", "on_table_reset"),
    *("branch", "checks", "on_failed_check"),
    *("delete_retention_seconds", "deletes", "deleted_column", "on_truncate"),
    *("coercion", "epoch_units"),
)
"""The parameters that an entry of `tables` may set."""

Format = Literal["json", "avro", "json_schema", "protobuf", "debezium_json", "debezium_avro", "dms"]
CHANGE_EVENTS = ("debezium_json", "debezium_avro", "dms")
"""The formats whose records say their operation."""
Metadata = Literal["topic", "partition", "offset", "timestamp", "key", "headers"]
_OF_HISTORY: tuple[Metadata, ...] = ("topic", "partition", "offset", "timestamp")
MetadataColumns = Annotated[list[Metadata], BeforeValidator(values.parse_column_names)]
ClientOptions = Annotated[Properties, BeforeValidator(parse_client_options), WithoutSecrets, AS_TEXTS]
Routes = Annotated[Properties, BeforeValidator(parse_routes), WithoutSecrets, AS_TEXTS]
TableEntries = Annotated[dict[str, dict[str, Any]], BeforeValidator(parse_tables)]
Select = Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(values.parse_expressions)]
Transforms = Annotated[list[Annotated[str, Field(pattern=_TRANSFORM)]], BeforeValidator(split_transforms)]


class IngestConfig(ParameterModel):
    """The parameters of an ingest: what to read from Kafka, which tables to write, and how; frozen.

    All values may be strings, as for `SyncConfig`; an empty string means the default.

    Raises:
        ConfigError: With one sentence in `problems` for every wrong or unknown parameter.
    """

    reads_kafka: ClassVar[bool] = True

    job: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    """Name of this ingest, up to 100 letters, digits, ., _ and -. Its snapshots carry it; under another name all
    records are read again."""
    bootstrap_servers: Annotated[str, Field(pattern=rf"^{_SERVER}(,{_SERVER})*$"), BeforeValidator(join_servers)]
    """Kafka brokers, host:port; several as a list or with commas."""
    topics: Names = Field(default_factory=list)
    """Topics to read, as a list, JSON array or "a,b"."""
    topic_pattern: str = ""
    """Java regular expression for the topics to read; use it instead of topics."""
    kafka_options: ClientOptions = Field(default_factory=Properties)
    """Kafka client properties such as security.protocol, a mapping or JSON object; values may be env:NAME or
    secret:scope/key."""
    isolation_level: Annotated[Literal["read_committed", "read_uncommitted"], LowerCase] = "read_committed"
    """read_committed: skip records of aborted transactions. read_uncommitted: read them too."""
    starting_offsets: Annotated[str, BeforeValidator(parse_starting_offsets)] = "earliest"
    """Where the first run of a job starts: earliest, latest, an ISO timestamp (UTC) or JSON, topic to partition to
    offset."""
    trigger: Annotated[Literal["available_now", "continuous"], LowerCase] = "available_now"
    """available_now: read what the topics have, then end. continuous: run until stopped."""
    trigger_interval_seconds: Seconds = 5.0
    """continuous: seconds from one batch to the next."""
    max_seconds: Seconds = 0.0
    """continuous: seconds after which no new batch begins; 0: no limit."""
    max_records_per_batch: Count = 1_000_000
    """Approximate number of records in a batch; 0: no limit."""
    replay_dead_letters: bool = False
    """Put the job's dead letters through the ingest again instead of reading topics, after their cause was removed."""
    on_lost_offsets: Annotated[Literal["fail", "continue"], LowerCase] = "fail"
    """When records were removed from the topic before they were read: fail, or continue without them."""
    on_table_reset: Annotated[Literal["fail", "refill", "continue"], LowerCase] = "fail"
    """When a table was dropped, replaced or rolled back: fail, refill it with what the topic still has, or continue
    with new records."""

    format: Annotated[Format, LowerCase] = "json"
    """json, avro, json_schema, protobuf, debezium_json, debezium_avro or dms."""
    schema_registry_url: OptionalUrl = ""
    """http(s)://host:port of the schema registry."""
    schema_registry_username: Text = ""
    """User name for the schema registry. Default: none."""
    schema_registry_password: SecretReference = ""
    """Reference to the password: env:NAME or secret:scope/key; never the password itself."""
    tombstones: Annotated[Literal["delete", "ignore", "reject"], LowerCase] = "delete"
    """Records without a value: delete the row of their key, ignore them, or reject them as dead letters."""
    key_format: Annotated[Literal["text", "json"], LowerCase] = "text"
    """Format of tombstone keys that are a single value: text, read by the type of the identifier column, or json, a
    JSON value such as 5 or "a"."""
    op_field: str = ""
    """Field of plain records that says insert, update or delete. Default: none."""
    operation: str = ""
    """SQL over the record that says insert, update or delete, instead of op_field: coalesce(headers['op'],
    'upsert'). Default: none."""
    where: str = ""
    """SQL condition over the record; other records are dropped and counted. Default: none."""
    select: Select = Field(default_factory=list)
    """Fields of the row as SQL over the record, a list or JSON array: ["*", "CAST(source.lsn AS BIGINT) AS lsn"].
    Default: the fields of the record."""
    column_case: Annotated[Literal["insensitive", "sensitive", "lower"], LowerCase] = "sensitive"
    """How field names match column names. sensitive: exactly. insensitive: in any case. lower: in any case, and new
    columns are lower-case."""
    unknown_fields: Annotated[Literal["ignore", "reject"], LowerCase] = "ignore"
    """Fields without a column: ignore the field, or reject the record as a dead letter."""
    coercion: Annotated[Literal["strict", "lenient"], LowerCase] = "strict"
    """strict: values fit columns of their own type. lenient: also numbers and booleans as text, and 1.0 in columns of
    whole numbers."""
    epoch_units: Annotated[TextMapping, BeforeValidator(parse_epoch_units)] = Field(default_factory=Properties)
    """Unit of whole numbers since 1970 in date and timestamp columns: days, seconds, millis, micros or nanos. Mapping
    or JSON object, column (nested with dots, * for all) to unit."""
    evolve_schema: bool = False
    """Let records add columns, widen types and make columns optional. Otherwise they are dead letters."""

    route_by: Annotated[Literal["table", "regex", "field", "topic", "expression"], LowerCase] = "table"
    """table: all records to one table. regex: to each table of routes whose expression matches. field: to the table
    that a field names. topic: to the table of the topic. expression: to the tables that route names."""
    table: OptionalTableName = ""
    """route_by=table: the table, catalog.namespace.table."""
    namespace: Annotated[str, AfterValidator(values.check_namespace)] = ""
    """catalog.namespace of the tables that a field, the topic or route names. Default: that of the table."""
    route: str = ""
    """route_by=expression: SQL over the record that gives the table's name, or an array of names: source.table."""
    route_field: str = ""
    """Field that decides the table; nested fields with dots. Default for regex: the topic."""
    routes: Routes = Field(default_factory=Properties)
    """route_by=regex: JSON object, table to regular expression (Java). It must match the whole field."""
    table_concurrency: int = Field(default=4, ge=1, le=64)
    """How many tables are written at the same time (1 to 64)."""

    tables: TableEntries = Field(default_factory=dict)
    """Parameters of single tables, by name or pattern (orders, lake.shop.eu_*), a mapping or JSON object. The first
    entry that matches counts."""
    mode: Annotated[Literal["append", "upsert", "history"], LowerCase] = "append"
    """append: every record becomes a row. upsert: the last record of each identifier becomes its row. history: every
    change becomes a row, deletes too, with _op and where it is in Kafka."""
    identifier_columns: Names = Field(default_factory=list)
    """Columns that identify a row, as a list or "a,b". Default: the table's identifier fields."""
    ordering_column: str = ""
    """upsert: the record with the higher value is newer. Default: by timestamp, partition and offset."""
    deletes: Annotated[Literal["hard", "soft"], LowerCase] = "hard"
    """upsert: hard removes a deleted row; soft keeps it, and deleted_column says when it was deleted."""
    deleted_column: str = ""
    """deletes=soft: column for the timestamp of the delete; null in other rows."""
    delete_retention_seconds: Seconds = 7 * 86_400.0
    """upsert with ordering_column: how long at least a deleted key stays deleted for older upserts that come later; 0:
    not at all."""
    on_truncate: Annotated[Literal["fail", "apply", "reject"], LowerCase] = "fail"
    """When Debezium says that a source table was truncated: fail, the table is behind; apply, empty the table, too; or
    reject the record as a dead letter."""
    metadata_columns: MetadataColumns = Field(default_factory=list, validate_default=True)
    """Kafka metadata to store: topic, partition, offset, timestamp, key, headers, as _kafka_topic and so on."""

    auto_create: bool = False
    """Create tables and namespaces that do not exist."""
    partition_by: Transforms = Field(default_factory=list)
    """Partitions of created tables, as a list: "days(ts)", "bucket(16, id)", "region"."""
    table_properties: TextMapping = Field(default_factory=Properties)
    """Properties of created tables, a mapping or JSON object."""
    sort_columns: Names = Field(default_factory=list)
    """Sort order of the rows in each file."""
    distribution: Annotated[Literal["table", "none", "hash", "range"], LowerCase] = "table"
    """How Spark distributes rows to writers: none, hash or range; table: as the table's properties say."""
    target_file_bytes: Bytes = 0
    """Target size of data files; 0: as the table's properties say."""
    branch: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,100}$")] = "main"
    """Branch of the table to write, made from its main branch if it is missing: for an audit before readers see it."""
    checks: TextMapping = Field(default_factory=Properties)
    """Queries that must return no row, mapping or JSON object, name to SQL over batch and staged:
    {"positive":"SELECT * FROM batch WHERE amount < 0"}."""
    on_failed_check: Annotated[Literal["hold", "dead_letter"], LowerCase] = "hold"
    """hold: publish nothing of the batch, the table is behind. dead_letter: publish it without the records that a check
    returns (their _kafka_topic, _kafka_partition and _kafka_offset), or without any record."""
    compact_min_files: Count = 0
    """Compact a table at the end of a run if it has at least this many small data files; 0: never."""

    commit_log_table: OptionalTableName = ""
    """Table with a row for each batch. Default: icecdc_ingest_log in the namespace."""
    dead_letter_table: OptionalTableName = ""
    """Table for records that cannot be routed, decoded or written. Default: icecdc_ingest_dead_letters in the
    namespace."""
    deletes_table: OptionalTableName = ""
    """Table for the deleted keys. Default: icecdc_ingest_deletes in the namespace."""

    @field_validator("metadata_columns", mode="after")
    @classmethod
    def _with_position(cls, value: list[Metadata], info: ValidationInfo) -> list[Metadata]:
        return list(dict.fromkeys([*_OF_HISTORY, *value])) if info.data.get("mode") == "history" else value

    @classmethod
    def load(cls, path: str | Path, job: str = "", **overrides: Any) -> Self:
        """Load the parameters of one ingest from a file (`ingests.yml`)."""
        (config,) = load_configurations(path, cls, INGESTS, [job], overrides).values()
        return config

    @classmethod
    def load_all(cls, path: str | Path, only: Sequence[str] = (), **overrides: Any) -> dict[str, Self]:
        """Load the parameters of all or some ingests from a file (`ingests.yml`)."""
        return load_configurations(path, cls, INGESTS, [only] if isinstance(only, str) else only, overrides)

    def __init__(self, /, **given: Any) -> None:
        super().__init__(**given)
        self.of_tables  # noqa: B018 (it refuses wrong entries)

    @cached_property
    def of_tables(self) -> dict[str, "IngestConfig"]:
        """The configuration of the tables of each entry; raises ConfigError."""
        configs, problems = dict[str, IngestConfig](), list[str]()
        for name, entry in self.tables.items():
            others = [each for each in entry if each not in OF_A_TABLE]
            problems += [f"tables.{name}.{each}: is of no single table. Remedy: leave it out." for each in others]
            try:
                configs[name] = self.replace(**{each: entry[each] for each in OF_A_TABLE if each in entry}, tables={})
            except ConfigError as error:
                problems += [f"tables.{name}.{problem}" for problem in error.problems]
        if problems:
            raise problems_error(problems)
        return configs

    def for_table(self, name: str) -> "IngestConfig":
        """The configuration of a table, whose name may have back-quotes: the job's, with what its entry sets."""
        if not self.tables:
            return self
        *_, last = parts = values.split_table_name(name)
        for pattern, own in self.of_tables.items():
            if fnmatchcase(".".join(parts) if "." in pattern else last, pattern):
                return own
        return self

    @classmethod
    def _derived(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The namespace of the table, or of the first route."""
        try:
            named = given.get("table") or next(iter(parse_routes(given.get("routes") or {})), "")
            return {"namespace": ".".join(map(quoted, values.split_table_name(named)[:-1]))} if named else {}
        except (PydanticCustomError, TypeError):  # a table that is no string
            return {}

    @classmethod
    def _combination_problems(cls, given: Mapping[str, Any]) -> list[str]:
        problems, has = list[str](), given.get
        kind, route_by, mode = has("format", "json"), has("route_by", "table"), has("mode", "append")
        table, routes, namespace = (has(name) for name in ("table", "routes", "namespace"))
        by, is_soft = f"route_by={route_by!r}", has("deletes") == "soft"
        needs = {"table": ["table"], "regex": ["routes"], "field": ["route_field", "namespace"], "topic": ["namespace"]}
        needs["expression"] = ["route", "namespace"]

        def refuse(problem: str, remedy: str) -> None:
            problems.append(f"{problem}. Remedy: {remedy}.")

        for name in needs[route_by]:
            if not has(name):
                refuse(f"{name}: missing for {by}", "set it")
        if kind in ("avro", "json_schema", "protobuf", "debezium_avro") and not has("schema_registry_url"):
            refuse(f"schema_registry_url: missing for format={kind!r}", "set it")
        if has("schema_registry_password") and not has("schema_registry_username"):
            refuse("schema_registry_username: missing for schema_registry_password", "set it")
        if bool(has("topics")) == bool(has("topic_pattern")):
            refuse("topics: give either topics or topic_pattern", "name the topics")
        if table and route_by != "table":
            refuse(f"table: given together with {by}", "use routes or namespace instead")
        for name, needed in (("routes", "regex"), ("route", "expression")):
            if has(name) and route_by != needed:
                refuse(f"{name}: given together with {by}", f"set route_by={needed}")
        for name in ("op_field", "operation"):
            if has(name) and kind in CHANGE_EVENTS:
                refuse(f"{name}: given for format={kind!r}, whose records say it", "leave it out")
        if has("op_field") and has("operation"):
            refuse("operation: given together with op_field", "use one")
        if has("ordering_column") and mode == "append":
            refuse("ordering_column: given for mode='append'", "set mode=upsert, or leave it out")
        if is_soft and mode == "append":
            refuse("deletes: 'soft' given for mode='append'", "set mode=upsert, or leave it out")
        if has("on_truncate") == "apply" and (is_soft or mode == "history"):
            refuse("on_truncate: 'apply' given for a table that keeps deleted rows", "set on_truncate=reject")
        if is_soft != bool(has("deleted_column")):
            refuse("deleted_column: it and deletes=soft are given together", "set both, or none")
        tables = [name for name in (table, *(routes or ())) if name]
        ours = {"commit_log_table": LOG_TABLE, "dead_letter_table": DEAD_LETTER_TABLE, "deletes_table": DELETES_TABLE}
        own = [has(parameter, f"{namespace}.{name}") for parameter, name in ours.items() if namespace]
        destinations, others = ({quoted_table(name).lower() for name in names} for names in (tables, own))
        if len(destinations) < len({quoted_table(name) for name in tables}):
            refuse("routes: two tables differ only in case, and many catalogs ignore it", "rename one, or use one")
        if len(others) < len(own) or destinations & others:
            refuse(f"{', '.join(ours)}: they and the tables of records must differ", "rename one")
        inside = [f"{namespace}.t"] if namespace else []
        catalogs = sorted({values.split_table_name(name)[0] for name in [*tables, *own, *inside]})
        if len(catalogs) > 1:
            refuse(f"namespace: the tables are in several catalogs: {', '.join(catalogs)}", "use one")
        return problems

    @property
    def keeps_deletes(self) -> bool:
        """Whether a delete is written as a row, which has only identifiers."""
        return self.mode == "history" or self.deletes == "soft"

    @property
    def subject(self) -> dict[str, str]:
        return {"table": self.table or self.namespace, "index": self.job}

    @property
    def catalog(self) -> str:
        return values.split_table_name(f"{self.namespace}.t")[0]

    @property
    def quoted_namespace(self) -> str:
        return ".".join(quoted(part) for part in values.split_table_name(f"{self.namespace}.t")[:-1])

    @property
    def quoted_commit_log(self) -> str:
        return quoted_table(self.commit_log_table or f"{self.namespace}.{LOG_TABLE}")

    @property
    def quoted_dead_letters(self) -> str:
        return quoted_table(self.dead_letter_table or f"{self.namespace}.{DEAD_LETTER_TABLE}")

    @property
    def quoted_deletes(self) -> str:
        return quoted_table(self.deletes_table or f"{self.namespace}.{DELETES_TABLE}")

    @property
    def own_tables(self) -> set[str]:
        return {self.quoted_commit_log, self.quoted_dead_letters, self.quoted_deletes}

    @property
    def schema_registry_auth(self) -> str:
        """`user:password` for the schema registry, "" for none; raises SecretError."""
        password = self.schema_registry_password and resolve(self.schema_registry_password, "schema_registry_password")
        return f"{self.schema_registry_username}:{password}" if self.schema_registry_username else ""

    @property
    def client_properties(self) -> dict[str, str]:
        """Properties for a Kafka client, with the values of secrets; raises SecretError."""
        return {
            **self.kafka_options.resolved("kafka_options"),
            "bootstrap.servers": self.bootstrap_servers,
            "isolation.level": self.isolation_level,
        }


class InitIngestConfig(IngestConfig):
    """The parameters of `icecdc init-ingest`; what else is given becomes the `defaults` of the file."""

    job: str = "init"
    """Not used: the file names its ingests."""
    route_by: Annotated[Literal["topic"], LowerCase] = "topic"
    """Each topic has a table; change it in the file."""
    output: Annotated[PathText, AfterValidator(values.check_new_file), Field(validate_default=True)] = "ingests.yml"
    """The ingest file to write. It must not exist."""

    @classmethod
    def _derived(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        return {**super()._derived(given), "route_by": "topic"}

"""`IngestConfig`: every parameter of the ingest, typed and documented; one error reports all problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from icecdc_core.config.model import (
    Bytes,
    CatalogProperties,
    Count,
    LogPath,
    LowerCase,
    MetricsUrl,
    Names,
    OptionalTableName,
    OptionalUrl,
    ParameterModel,
    ReportPath,
    Seconds,
    SecretReference,
    SparkConf,
    Text,
    TextMapping,
    Warehouse,
)
from icecdc_core.config.parsing import names
from icecdc_core.ingest import parameters as own
from icecdc_core.ingest.problems import combination_problems
from icecdc_core.quoting import quoted
from icecdc_core.secrets import Properties, resolve

Namespace = Annotated[str, AfterValidator(own.check_namespace)]
JobName = Annotated[str, AfterValidator(own.check_job_name)]
Servers = Annotated[str, BeforeValidator(own.parse_servers)]
MetadataColumns = Annotated[list[str], BeforeValidator(own.parse_metadata_columns)]
Transforms = Annotated[list[str], BeforeValidator(own.parse_transforms)]
Expression = Annotated[str, AfterValidator(own.check_expression)]
Routes = Annotated[Properties, BeforeValidator(own.parse_routes)]
ClientOptions = Annotated[Properties, BeforeValidator(own.parse_client_options)]
StartingOffsets = Annotated[str, BeforeValidator(own.parse_starting_offsets)]

LOG_TABLE = "icecdc_ingest_log"
DEAD_LETTER_TABLE = "icecdc_ingest_dead_letters"


class IngestConfig(ParameterModel):
    """The parameters of an ingest: what to read from Kafka, which tables to write, and how; frozen.

    All values may be strings, as for `SyncConfig`; an empty string means the default.

    Raises:
        ConfigError: With one sentence in `problems` for every wrong or unknown parameter.
    """

    reads_kafka: ClassVar[bool] = True

    job: JobName = Field(
        description="Name of this ingest. Its snapshots carry it; under another name all records are read again."
    )
    bootstrap_servers: Servers = Field(description="Kafka brokers, host:port; several as a list or with commas.")
    topics: Names = Field(default_factory=list, description='Topics to read, as a list, JSON array or "a,b".')
    topic_pattern: Expression = Field(
        default="", description="Java regular expression for the topics to read; use it instead of topics."
    )
    kafka_options: ClientOptions = Field(
        default_factory=Properties,
        description="Kafka client properties such as security.protocol, a mapping or JSON object; values may be "
        "env:NAME or secret:scope/key.",
    )
    isolation_level: Annotated[Literal["read_committed", "read_uncommitted"], LowerCase] = Field(
        default="read_committed",
        description="read_committed: skip records of aborted transactions. read_uncommitted: read them too.",
    )
    starting_offsets: StartingOffsets = Field(
        default="earliest",
        description="Where the first run of a job starts: earliest, latest, an ISO timestamp (UTC) or JSON, topic to "
        "partition to offset.",
    )
    trigger: Annotated[Literal["available_now", "continuous"], LowerCase] = Field(
        default="available_now",
        description="available_now: read what the topics have, then end. continuous: run until stopped.",
    )
    trigger_interval_seconds: Seconds = Field(
        default=5.0, description="continuous: seconds from one batch to the next."
    )
    max_seconds: Seconds = Field(
        default=0.0, description="continuous: seconds after which no new batch begins; 0: no limit."
    )
    max_records_per_batch: Count = Field(
        default=1_000_000, description="Approximate number of records in a batch; 0: no limit."
    )
    on_lost_offsets: Annotated[Literal["fail", "continue"], LowerCase] = Field(
        default="fail",
        description="When records were removed from the topic before they were read: fail, or continue without them.",
    )
    on_table_reset: Annotated[Literal["fail", "refill", "continue"], LowerCase] = Field(
        default="fail",
        description="When a table was dropped, replaced or rolled back: fail, refill it with what the topic still has, "
        "or continue with new records.",
    )

    format: Annotated[
        Literal["json", "avro", "json_schema", "debezium_json", "debezium_avro", "dms"],
        LowerCase,
    ] = Field(default="json", description="json, avro, json_schema, debezium_json, debezium_avro or dms.")
    schema_registry_url: OptionalUrl = Field(default="", description="http(s)://host:port of the schema registry.")
    schema_registry_username: Text = Field(default="", description="User name for the schema registry. Default: none.")
    schema_registry_password: SecretReference = Field(
        default="", description="Reference to the password: env:NAME or secret:scope/key; never the password itself."
    )
    tombstones: Annotated[Literal["delete", "ignore", "reject"], LowerCase] = Field(
        default="delete",
        description="Records without a value: delete the row of their key, ignore them, or reject them as dead "
        "letters.",
    )
    key_format: Annotated[Literal["text", "json"], LowerCase] = Field(
        default="text",
        description="Format of tombstone keys that are a single value: text, read by the type of the identifier "
        'column, or json, a JSON value such as 5 or "a".',
    )
    op_field: str = Field(
        default="", description="Field of plain records that says insert, update or delete. Default: none."
    )
    column_case: Annotated[Literal["insensitive", "sensitive", "lower"], LowerCase] = Field(
        default="sensitive",
        description="How field names match column names. sensitive: exactly. insensitive: in any case. lower: in "
        "any case, and new columns are lower-case.",
    )
    unknown_fields: Annotated[Literal["ignore", "reject"], LowerCase] = Field(
        default="ignore",
        description="Fields without a column: ignore the field, or reject the record as a dead letter.",
    )
    evolve_schema: bool = Field(
        default=False,
        description="Let records add columns, widen types and make columns optional. Otherwise they are dead letters.",
    )

    route_by: Annotated[Literal["table", "regex", "field", "topic"], LowerCase] = Field(
        default="table",
        description="table: all records to one table. regex: to each table of routes whose expression matches. "
        "field: to the table that a field names. topic: to the table of the topic.",
    )
    table: OptionalTableName = Field(default="", description="route_by=table: the table, catalog.namespace.table.")
    namespace: Namespace = Field(
        default="",
        description="catalog.namespace of the tables that a field or the topic names. Default: that of the table.",
    )
    route_field: str = Field(
        default="", description="Field that decides the table; nested fields with dots. Default for regex: the topic."
    )
    routes: Routes = Field(
        default_factory=Properties,
        description="route_by=regex: JSON object, table to regular expression (Java). It must match the whole field.",
    )
    table_concurrency: int = Field(
        default=4, ge=1, le=64, description="How many tables are written at the same time (1 to 64)."
    )

    mode: Annotated[Literal["append", "upsert"], LowerCase] = Field(
        default="append",
        description="append: every record becomes a row. upsert: the last record of each identifier becomes its row.",
    )
    identifier_columns: Names = Field(
        default_factory=list,
        description='Columns that identify a row, as a list or "a,b". Default: the table\'s identifier fields.',
    )
    ordering_column: str = Field(
        default="",
        description="upsert: the record with the higher value is newer. Default: by timestamp, partition and offset.",
    )
    metadata_columns: MetadataColumns = Field(
        default_factory=list,
        description="Kafka metadata to store: topic, partition, offset, timestamp, key, headers, as _kafka_topic "
        "and so on.",
    )

    auto_create: bool = Field(default=False, description="Create tables and namespaces that do not exist.")
    partition_by: Transforms = Field(
        default_factory=list,
        description='Partitions of created tables, as a list: "days(ts)", "bucket(16, id)", "region".',
    )
    table_properties: TextMapping = Field(
        default_factory=Properties, description="Properties of created tables, a mapping or JSON object."
    )
    sort_columns: Names = Field(default_factory=list, description="Sort order of the rows in each file.")
    distribution: Annotated[Literal["table", "none", "hash", "range"], LowerCase] = Field(
        default="table",
        description="How Spark distributes rows to writers: none, hash or range; table: as the table's properties say.",
    )
    target_file_bytes: Bytes = Field(
        default=0, description="Target size of data files; 0: as the table's properties say."
    )
    compact_min_files: Count = Field(
        default=0,
        description="Compact a table at the end of a run if it has at least this many small data files; 0: never.",
    )

    commit_log_table: OptionalTableName = Field(
        default="", description=f"Table with a row for each batch. Default: {LOG_TABLE} in the namespace."
    )
    dead_letter_table: OptionalTableName = Field(
        default="",
        description=f"Table for records that cannot be routed, decoded or written. Default: {DEAD_LETTER_TABLE} in "
        "the namespace.",
    )
    catalog_properties: CatalogProperties = Properties()
    warehouse: Warehouse = ""
    report_path: ReportPath = ""
    log_path: LogPath = ""
    metrics_folder: Text = Field(default="", description="Folder for the metrics as Prometheus text. Default: none.")
    metrics_url: MetricsUrl = ""
    spark_conf: SparkConf = Properties()

    @classmethod
    def _derived(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        return own.derive_namespace(given)

    @classmethod
    def _combination_problems(cls, given: Mapping[str, Any]) -> list[str]:
        return combination_problems(given)

    @property
    def subject(self) -> dict[str, str]:
        """What a run works on, as its log and metrics name it."""
        return {"table": self.table or self.namespace, "index": self.job}

    @property
    def namespace_parts(self) -> tuple[str, ...]:
        """Catalog and namespace levels of tables that records name, and of the ingest's own tables."""
        return names.split_table_name(f"{self.namespace}.t")[:-1]

    @property
    def catalog(self) -> str:
        """Name of the Spark catalog."""
        return self.namespace_parts[0]

    @property
    def quoted_namespace(self) -> str:
        """Catalog and namespace with every part back-quoted."""
        return ".".join(quoted(part) for part in self.namespace_parts)

    @property
    def quoted_commit_log(self) -> str:
        """Name of the commit log, every part back-quoted."""
        return own.quoted_table(self.commit_log_table) or f"{self.quoted_namespace}.{quoted(LOG_TABLE)}"

    @property
    def quoted_dead_letters(self) -> str:
        """Name of the dead letter table, every part back-quoted."""
        return own.quoted_table(self.dead_letter_table) or f"{self.quoted_namespace}.{quoted(DEAD_LETTER_TABLE)}"

    @property
    def schema_registry_auth(self) -> str:
        """`user:password` for the schema registry, "" for none; raises SecretError."""
        if not self.schema_registry_username:
            return ""
        password = self.schema_registry_password
        secret = resolve(password, "schema_registry_password") if password else ""
        return f"{self.schema_registry_username}:{secret}"

    @property
    def client_properties(self) -> dict[str, str]:
        """Properties for a Kafka client, with the values of secrets; raises SecretError."""
        return {
            **self.kafka_options.resolved("kafka_options"),
            "bootstrap.servers": self.bootstrap_servers,
            "isolation.level": self.isolation_level,
        }

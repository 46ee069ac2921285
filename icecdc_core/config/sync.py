"""`SyncConfig`: the parameters of all jobs that write an index, with their types, defaults and descriptions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from icecdc_core.config import values
from icecdc_core.config.entries import EMBED, NEST, Embedding, Nested, check_embed, check_nest, with_entries
from icecdc_core.config.index_file import INDEXES, load_configurations
from icecdc_core.config.model import (
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
)

StartFrom = Annotated[str, BeforeValidator(values.parse_start_from), WithJsonSchema({"type": ["string", "integer"]})]
Name = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$")]
Policy = Annotated[Literal["fail", "reexport"], LowerCase]
Select = Annotated[list[str], BeforeValidator(values.parse_expressions)]
JsonObject = Annotated[dict[str, Any], BeforeValidator(values.parse_json_object)]


class SyncConfig(ParameterModel):
    """What to sync, where to, and how; frozen, and can be pickled to executors.

    All values may be strings (`"true"`, `"0"`, JSON, comma lists), because a job often passes nothing else. An empty
    string means the default.

    Raises:
        ConfigError: With one sentence in `problems` for every wrong or unknown parameter.
    """

    table: OptionalTableName
    """Source table, catalog.namespace.table as Spark names it."""
    index: Annotated[str, AfterValidator(partial(values.check_index_name, max_bytes=values.MAX_TARGET_BYTES))] = ""
    """OpenSearch index to keep in sync with the table. Default: the table's name in lower case."""
    opensearch_url: OptionalUrl = "http://127.0.0.1:9200"
    """http(s)://host:port of OpenSearch, without credentials."""
    opensearch_username: str = ""
    """User name for basic authentication, or a reference to it: env:NAME or secret:scope/key. Default: none."""
    opensearch_password: SecretReference = ""
    """Reference to the password: env:NAME or secret:scope/key; never the password itself."""
    opensearch_ca_certs: PathText = ""
    """File with the CA certificates. Default: the system's file, else certifi's."""
    opensearch_verify_certs: bool = True
    """Check the server's certificate."""
    opensearch_client_cert: PathText = ""
    """PEM file with this client's certificate. Default: none."""
    opensearch_client_key: PathText = ""
    """PEM file with the private key of the client certificate. Default: in the certificate's file."""
    opensearch_aws_region: Text = ""
    """AWS region: requests are signed with the credentials of the environment. Default: unsigned."""
    identifier_columns: Names = Field(default_factory=list)
    """Columns that make the document id, as a list, JSON array or "a,b". Default: the table's own identifier
    fields."""
    columns: Names = Field(default_factory=list)
    """Columns of the document, as a list, JSON array or "a,b". Default: all."""
    alias: Name = ""
    """Name of the table in the expressions of select. Default: none."""
    select: Select = Field(default_factory=list)
    """Fields of the document as Spark SQL expressions, a list or JSON array of strings as DataFrame.selectExpr
    takes them. Default: the columns."""
    mapping: JsonObject = Field(default_factory=dict)
    """Mapping of fields, such as {"title": {"type": "text"}}, over the generated one. Default: none."""
    settings: JsonObject = Field(default_factory=dict)
    """Index settings, such as {"refresh_interval": "5s"}. Default: none."""
    pipeline_fields: Names = Field(default_factory=list)
    """Fields that an ingest pipeline makes, as a list, JSON array or "a,b"; the validation does not compare them.
    Default: none."""
    routing: str = ""
    """Column of the table whose value routes a document to its shard. Default: the document id does."""
    index_column: str = ""
    """Field of the document whose value is the suffix of the index that it is in; searches find all of these indexes.
    Default: one index."""
    max_indexes: int = Field(default=100, ge=1, le=1000)
    """Most indexes that index_column may make."""
    nest: Annotated[JsonObject, AfterValidator(check_nest)] = Field(default_factory=dict)
    """Rows of other tables in the document, such as {"language": {"table": "lake.shop.language", "alias": "l", "on":
    "l.language_id = f.language_id", "as": "object"}}. Default: none."""
    max_fan_out: int = Field(default=1_000_000, ge=1, le=2**31 - 1)
    """Documents that the changes of nested tables may rewrite in one batch; a run that would exceed it fails before its
    first write."""
    embed: Annotated[JsonObject, AfterValidator(check_embed)] = Field(default_factory=dict)
    """Vectors of texts of the document, such as {"vector": {"text": "title", "function": "models:embed", "model":
    "small-1", "dimension": 384}}. Default: none."""
    embed_table: OptionalTableName = ""
    """Iceberg table, catalog.namespace.table, for the vectors of all texts. Default: icecdc_embeddings beside the
    source table."""
    embed_timeout_seconds: Seconds = 3600.0
    """Seconds that a model may take for the new texts of a batch, or of a group of files of an export; 0: no limit."""
    row_filter: str = ""
    """SQL condition, such as region = 'EU'; a row that stops matching leaves the index. Default: all."""
    branch: Name = "main"
    """Branch of the table."""
    change_mode: Annotated[Literal["net", "snapshot"], LowerCase] = "net"
    """net: one step for the whole range. snapshot: one step for each snapshot."""
    start_from: StartFrom = ""
    """Where to start without an export: latest, earliest, a snapshot id or an ISO timestamp (UTC). Default: export
    first."""
    on_history_gap: Policy = "fail"
    """When the position's snapshot has expired: fail or reexport."""
    on_schema_change: Policy = "fail"
    """When the schema changed by more than added columns: fail or reexport."""
    replace_index: bool = False
    """Let an export give an existing index another table or other identifier columns, or drop columns, row_filter,
    select, nest, embed, routing, index_column, mapping or settings that the index has and this run does not."""
    on_duplicate_identifier: Annotated[Literal["fail", "last"], LowerCase] = "fail"
    """When two rows share an identifier: fail, or let the last one win."""
    accelerator: Annotated[Literal["", "comet"], LowerCase] = ""
    """Engine that compares rows of copy-on-write tables of format v1 and v2: comet, if its plugin is loaded. Default:
    Spark; jobs switch other engines off in their own session."""
    row_hash: Annotated[Literal["fast", "keyed"], LowerCase] = "fast"
    """Hash that compares the rows of rewritten files: fast (xxhash64), or keyed (SHA-256 with a random key), which
    also detects updates that are crafted to collide."""
    max_rejected_documents: Count = 0
    """Documents that OpenSearch may reject before the run fails."""
    dead_letter_table: OptionalTableName = ""
    """Iceberg table, catalog.namespace.table, for rejected documents. Default: icecdc_dead_letters beside the
    source table."""
    dry_run: bool = False
    """Read and count the changes, write nothing."""
    only_as_planned: PathText = ""
    """File that icecdc plan --json was written to: a sync refuses to create, follow or export what it did not announce.
    Default: none."""
    validate_at: Annotated[Literal["current", "position"], LowerCase] = "current"
    """Compare the index with the current snapshot or with that of the position."""
    part: Annotated[str, AfterValidator(values.check_part)] = ""
    """Part of the document ids that the validation compares: one such as 3/100, or auto for the next one of
    audit_parts. Default: everything."""
    audit_seconds: Seconds = 0.0
    """Seconds that a sync may spend after each poll, on average, to compare the next parts of the index. 0: none."""
    audit_parts: int = Field(default=100, ge=1, le=1024)
    """Parts that part=auto compares one after the other (1 to 1024); fewer if the index has more than 10 shards."""
    repair: bool = False
    """Let the validation correct missing, extra and stale documents."""
    fail_on_difference: bool = False
    """Let the validation notebook fail, after its report, when index and table differ."""
    poll_interval_seconds: Seconds = 0.0
    """Seconds between two polls; with target_lag, the longest pause. 0: target_lag decides the pause; without
    target_lag the sync runs once."""
    max_polls: Count = 1
    """Polls before the run ends; 0: no limit."""
    target_lag: Annotated[Seconds, BeforeValidator(values.parse_duration)] = 0.0
    """Longest time that the index may be behind the table while a run polls, in seconds or as 10s, 5m or 1h.
    Default: none."""
    freshness_slo: Annotated[Seconds, BeforeValidator(values.parse_duration)] = 0.0
    """Promised freshness, in seconds or as 30s, 5m or 1h: the index is lagging when it lacks an older commit.
    Default: none."""
    bulk_bytes: int = Field(default=4 * 1024 * 1024, ge=1024, le=100 * 1024 * 1024)
    """Bytes of one bulk request (1 KiB to 100 MiB)."""
    bulk_connections: int = Field(default=2, ge=1, le=64)
    """Bulk requests in flight for each Spark task (1 to 64)."""
    request_timeout_seconds: float = Field(default=60.0, gt=0, le=3600, allow_inf_nan=False)
    """Seconds to wait for one answer."""
    retry_timeout_seconds: Seconds = 300.0
    """Seconds to retry a failing request; 0: no retries."""
    number_of_shards: int = Field(default=1, ge=1, le=1024)
    """Primary shards of a new index (1 to 1024)."""
    number_of_replicas: int = Field(default=1, ge=0, le=1024)
    """Replicas of each shard of a new index (0 to 1024)."""
    export_group_bytes: int = Field(default=512 * 1024 * 1024, ge=1, le=2**50)
    """Bytes of data files that an export writes before it records progress."""
    keep_index: Annotated[Seconds, BeforeValidator(values.parse_duration)] = 0.0
    """How long an export keeps the index before it for a rollback, in seconds or as 12h or 7d. Default: not at all."""
    positions_index: Annotated[str, AfterValidator(values.check_index_name)] = "icecdc-positions"
    """Index with the positions and the commit log."""
    lease_seconds: float = Field(default=60.0, allow_inf_nan=False, ge=0.1, le=values.MAX_LEASE_SECONDS)
    """Seconds without a heartbeat after which the lock of a run expires (0.1 to 3600)."""

    @classmethod
    def load(cls, path: str | Path, index: str = "", **overrides: Any) -> Self:
        """Load the parameters of one index from an index file (`indexes.yml`)."""
        (config,) = load_configurations(path, cls, INDEXES, [index], overrides).values()
        return config

    @classmethod
    def load_all(cls, path: str | Path, only: Sequence[str] = (), **overrides: Any) -> dict[str, Self]:
        """Load the parameters of all or some indexes from an index file (`indexes.yml`)."""
        return load_configurations(path, cls, INDEXES, [only] if isinstance(only, str) else only, overrides)

    @classmethod
    def _derived(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        table = given.get("table")
        with suppress(PydanticCustomError):
            return {"index": values.split_table_name(table)[-1].lower() if isinstance(table, str) else ""}
        return {}

    @classmethod
    def _combination_problems(cls, given: Mapping[str, Any]) -> list[str]:
        problems = []
        columns = given.get("columns", [])
        if outside := [name for name in given.get("identifier_columns", []) if columns and name not in columns]:
            problems.append(
                f"identifier_columns: {', '.join(outside)} not in columns={columns!r}. "
                "Remedy: add them to columns, or leave columns empty to take all."
            )
        apart = [("select", "columns"), ("opensearch_aws_region", "opensearch_username")]
        for name, other in [*apart, *combinations(("now", "snapshot", "committed_by"), 2)]:
            if given.get(name) and given.get(other):
                problems.append(f"{name}: given together with {other}. Remedy: leave one of them out.")
        for name, needed in (
            ("opensearch_username", "opensearch_password"),
            ("opensearch_password", "opensearch_username"),
            ("opensearch_client_key", "opensearch_client_cert"),
        ):
            if given.get(name) and not given.get(needed):
                problems.append(f"{needed}: missing, though {name} is set. Remedy: set both.")
        if given.get("opensearch_url", "").startswith("http:") and given.get("opensearch_client_cert"):
            problems.append("opensearch_client_cert: given for an http URL. Remedy: use https in opensearch_url.")
        settings = [*values.iterate_settings(given.get("settings", {}))]
        spelled = Counter(name for name, _ in settings)
        if twice := [name for name, times in spelled.items() if times > 1]:
            problems.append(f"settings: has {', '.join(twice)} twice, index. makes no difference. Remedy: keep one.")
        set_there = {"number_of_shards", "number_of_replicas"} & {name for name, value in settings if value is not None}
        for name in sorted(set_there & given.keys()):
            problems.append(f"{name}: given in settings, too. Remedy: keep one of them.")
        if given.get("index") == given.get("positions_index", "icecdc-positions"):
            problems.append(f"index: {given['index']!r} is also the positions_index. Remedy: give it another name.")
        return problems

    @property
    def entries(self) -> dict[str, Nested]:
        return NEST.validate_python(self.nest)

    @property
    def embeddings(self) -> dict[str, Embedding]:
        return EMBED.validate_python(self.embed)

    @property
    def full_mapping(self) -> dict[str, Any]:
        return with_entries(self.mapping, self.entries, self.embeddings)

    @property
    def subject(self) -> dict[str, str]:
        return {"table": self.table, "index": self.index}

    @property
    def polls(self) -> bool:
        return bool(self.poll_interval_seconds or self.target_lag)

    @property
    def table_parts(self) -> tuple[str, ...]:
        return values.split_table_name(self.table)

    @property
    def catalog(self) -> str:
        return self.table_parts[0]

    @property
    def table_name(self) -> str:
        return self.table_parts[-1]

    @property
    def dead_letter_name(self) -> str:
        return self.dead_letter_table or values.join_table_name((*self.table_parts[:-1], "icecdc_dead_letters"))

    @property
    def embed_name(self) -> str:
        return self.embed_table or values.join_table_name((*self.table_parts[:-1], "icecdc_embeddings"))

    @property
    def start_point(self) -> str | int | datetime | None:
        """`start_from` as None, "latest", "earliest", a snapshot id or a datetime in UTC."""
        return values.parse_start_point(self.start_from)


_ANY_TABLE = "lake.default.none"


class StatusConfig(SyncConfig):
    """The parameters of a status or a rollback: `table` may be missing; it only names a catalog."""

    table: OptionalTableName = _ANY_TABLE
    """A table of the catalog that the lag is read from. Default: the catalog is named lake."""
    check: bool = False
    """Let an index that keeps its freshness_slo be ok although it lacks commits, and publish its freshness as
    metrics."""

    @property
    def subject(self) -> dict[str, str]:
        table, index = (name in self.model_fields_set for name in ("table", "index"))
        return {"table": self.table if table else "", "index": self.index if table or index else ""}


class WaitConfig(StatusConfig):
    """The parameters of `icecdc wait`: an index, and what to wait for."""

    index: Annotated[str, Field(min_length=1)]
    """OpenSearch index to wait for. Default: the table's name in lower case."""
    snapshot: int | None = None
    """Snapshot id that searches must find. Default: what was committed before the start."""
    committed_by: datetime | None = None
    """ISO time (UTC) up to which searches must find all commits. Default: the start."""
    now: bool = False
    """Wait for what was committed before the start, the default."""
    timeout: Annotated[Seconds, BeforeValidator(values.parse_duration)] = 60.0
    """Longest wait, in seconds or as 10s, 5m or 1h; 0 looks once."""


class InitConfig(ParameterModel):
    """The parameters of `icecdc init`; what else is given becomes the `defaults` of the file."""

    table: Annotated[str, AfterValidator(values.check_namespace)]
    """Table or namespace: catalog.namespace.table, or catalog.namespace for all its tables."""
    output: Annotated[PathText, AfterValidator(values.check_new_file), Field(validate_default=True)] = "indexes.yml"
    """The index file to write. It must not exist."""
    opensearch_url: OptionalUrl = "http://127.0.0.1:9200"
    """http(s)://host:port of OpenSearch, without credentials."""
    opensearch_username: str = ""
    """User name for basic authentication, or a reference to it: env:NAME or secret:scope/key. Default: none."""
    opensearch_password: SecretReference = ""
    """Reference to the password: env:NAME or secret:scope/key; never the password itself."""

    @property
    def parts(self) -> tuple[str, ...]:
        return values.split_table_name(f"{self.table}.any")[:-1]

    @property
    def catalog(self) -> str:
        return self.parts[0]

    @property
    def subject(self) -> dict[str, str]:
        return {"table": self.table, "index": ""}

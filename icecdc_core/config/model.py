"""`ParameterModel`, the base of all configurations: strings are converted, all problems reported, secrets hidden."""

from __future__ import annotations

import difflib
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    field_serializer,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from icecdc_core.config import values
from icecdc_core.config import values as urls
from icecdc_core.config.values import (
    check_optional_table_name,
    iterate_leaves,
    parse_column_names,
    parse_duration,
    parse_json_object,
    parse_properties,
)
from icecdc_core.errors import ConfigError
from icecdc_core.secrets import Properties, looks_secret, redact
from icecdc_core.user_folders import user_folder


def combination_problems(given: Mapping[str, Any]) -> list[str]:
    """Problems of parameters that do not fit together."""
    problems = []
    names: dict[str, list[str]] = {}
    for parameter in ("columns", "identifier_columns"):
        try:
            names[parameter] = list(parse_column_names(given.get(parameter, [])))  # type: ignore[call-overload]
        except PydanticCustomError:
            names[parameter] = []
    outside = [name for name in names["identifier_columns"] if names["columns"] and name not in names["columns"]]
    if outside:
        problems.append(
            f"identifier_columns: {', '.join(outside)} not in columns={names['columns']!r}. "
            "Remedy: add them to columns, or leave columns empty to take all."
        )
    if given.get("select") and given.get("columns"):
        problems.append("select: given together with columns. Remedy: name the columns in select.")
    if given.get("opensearch_username") and not given.get("opensearch_password"):
        problems.append(
            f"opensearch_password: missing for opensearch_username={given['opensearch_username']!r}. "
            "Remedy: set it to env:NAME or secret:scope/key."
        )
    if given.get("opensearch_password") and not given.get("opensearch_username"):
        problems.append("opensearch_username: missing, though opensearch_password is set. Remedy: set it.")
    if given.get("opensearch_client_key") and not given.get("opensearch_client_cert"):
        problems.append("opensearch_client_cert: missing, though opensearch_client_key is set. Remedy: set it.")
    if given.get("opensearch_aws_region") and given.get("opensearch_username"):
        problems.append(
            "opensearch_aws_region: given together with opensearch_username. Remedy: sign requests or use a password."
        )
    if str(given.get("opensearch_url", "")).startswith("http:") and given.get("opensearch_client_cert"):
        problems.append("opensearch_client_cert: given for an http URL. Remedy: use https in opensearch_url.")
    problems += _setting_problems(given) + _lag_problems(given)
    if given.get("index") == given.get("positions_index", "icecdc-positions"):
        problems.append(
            f"index: {given.get('index')!r} is also the positions_index. Remedy: give the index another name."
        )
    return problems


def _lag_problems(given: Mapping[str, Any]) -> list[str]:
    """A target lag that the poll interval alone exceeds."""
    interval, target = (_seconds(given.get(name)) for name in ("poll_interval_seconds", "target_lag"))
    if not 0 < target < interval:
        return []
    return [
        f"target_lag: {given['target_lag']!r} is shorter than "
        f"poll_interval_seconds={given['poll_interval_seconds']!r}. "
        "Remedy: leave poll_interval_seconds out, so that the pause follows from target_lag, or raise target_lag."
    ]


def _seconds(value: Any) -> float:
    """A duration as a number; 0 when it is missing or wrong."""
    try:
        return float(parse_duration(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return 0.0


def _setting_problems(given: Mapping[str, Any]) -> list[str]:
    """Index settings that are given twice: as a parameter and in `settings`, or in two spellings."""
    try:
        settings = parse_json_object(given.get("settings") or {})
    except PydanticCustomError:
        return []
    problems = []
    spellings: dict[str, str] = {}
    for spelling, _ in iterate_leaves(settings):  # type: ignore[arg-type]
        setting = spelling.removeprefix("index.")
        if setting in spellings:
            problems.append(f"settings: has {setting} twice. Remedy: keep one of its spellings.")
        spellings[setting] = spelling
    for parameter in ("number_of_shards", "number_of_replicas"):
        if parameter in spellings and parameter in given:
            problems.append(
                f"settings: has {spellings[parameter]}, which is given by the parameter {parameter}, too. "
                "Remedy: keep one of them."
            )
    return problems


def field_problem(details: ErrorDetails, given: Mapping[str, Any], help_texts: Mapping[str, str]) -> str:
    """Describe one of pydantic's errors."""
    name = str(details["loc"][0]) if details["loc"] else "parameters"
    if name not in help_texts:
        near = difflib.get_close_matches(name, help_texts, n=1)
        hint = f"did you mean {near[0]}" if near else "see parameters() of the configuration for all of them"
        # The value of a misspelt secret parameter is a secret, too.
        shown = _shown(f"{name} {near[0] if near else ''}", given.get(name))
        return f"{name}: unknown parameter [{name}={shown}]. Remedy: {hint}."
    help_text = help_texts[name].rstrip(".")
    if details["type"] == "missing":
        return f"{name}: missing. Remedy: set it ({help_text})."
    context = details.get("ctx") or {}
    message = details["msg"]
    value = f" [{name}={_shown(name, details['input'])}]" if context.get("show", True) else ""
    remedy = context.get("remedy") or f"set it as described: {help_text}"
    if name == "index" and not given.get("index"):
        remedy = f"set index, because the table's name cannot be used as its name; {remedy}"
    return f"{name}: {message[:1].lower()}{message[1:]}{value}. Remedy: {remedy}."


def _shown(name: str, value: object) -> str:
    """The value as a message shows it: short and without secrets."""
    try:
        text = repr("***" if looks_secret(name) and value else redact(name, value))
    except ValueError:  # Python refuses to write integers of thousands of digits
        text = f"a {type(value).__name__} of too many digits"
    return text if len(text) <= 200 else f"{text[:200]}..."


OptionalTableName = Annotated[str, AfterValidator(check_optional_table_name)]
OptionalUrl = Annotated[str, AfterValidator(urls.check_optional_url)]
SecretReference = Annotated[str, AfterValidator(values.check_secret_reference)]
Text = Annotated[str, AfterValidator(values.check_no_reference)]
Names = Annotated[list[str], BeforeValidator(values.parse_column_names)]
_TEXTS = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
TextMapping = Annotated[Properties, BeforeValidator(parse_properties), WithJsonSchema(_TEXTS)]
LowerCase = BeforeValidator(values.to_lower_case)
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Bytes = Annotated[int, Field(ge=0, le=2**50)]
Seconds = Annotated[float, Field(ge=0, le=366 * 24 * 3600, allow_inf_nan=False)]

# The parameters that all jobs share. Each configuration lists them at its place in the order of its documentation.
CatalogProperties = Annotated[
    TextMapping,
    AfterValidator(urls.check_catalog_properties),
    Field(
        examples=['{"type":"rest","uri":"https://catalog.example.com"}'],
        description="Iceberg catalog properties, a mapping or JSON object; values may be env:NAME or "
        "secret:scope/key. Default: a JDBC catalog on SQLite in the warehouse folder.",
    ),
]
Warehouse = Annotated[
    Text,
    Field(
        examples=["/data/warehouse"],
        description="Warehouse folder of the default catalog. Default: icecdc/warehouse in XDG_DATA_HOME or "
        "~/.local/share.",
    ),
]
ReportPath = Annotated[
    Text, Field(examples=["report.json"], description="File for the report as JSON. Default: none is written.")
]
LogPath = Annotated[
    Text,
    Field(
        examples=["/var/log/icecdc.jsonl"],
        description="File for the structured log, JSON lines; - for the standard error. Default: none is written.",
    ),
]
MetricsUrl = Annotated[
    OptionalUrl,
    Field(
        examples=["http://pushgateway:9091"],
        description="http(s)://host:port of a Prometheus Pushgateway for the metrics. Default: none.",
    ),
]
SparkConf = Annotated[
    TextMapping,
    AfterValidator(urls.check_spark_conf),
    Field(
        examples=['{"spark.driver.memory":"4g"}'],
        description="Spark settings for a new session, a mapping or JSON object; values may be references.",
    ),
]


class Parameter(NamedTuple):
    """A parameter as documentation and notebooks show it."""

    name: str
    type: str
    default: Any
    help: str


class ParameterModel(BaseModel):
    """Parameters of a job; frozen, and can be pickled to executors."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, str_strip_whitespace=True)

    reads_kafka: ClassVar[bool] = False
    """Whether the session needs Spark's Kafka connector."""

    if TYPE_CHECKING:
        catalog_properties: Properties
        warehouse: str
        spark_conf: Properties
        report_path: str
        log_path: str
        metrics_folder: str
        metrics_url: str

    def __init__(self, **given: Any) -> None:
        fields = type(self).model_fields
        cleaned = {name: value.strip() if isinstance(value, str) else value for name, value in given.items()}
        # An empty string, as of an empty widget, and None mean "not given".
        cleaned = {name: value for name, value in cleaned.items() if name not in fields or value not in ("", None)}
        derived = {name: value for name, value in self._derived(cleaned).items() if name not in cleaned}
        cleaned = {**derived, **cleaned}
        problems: list[str] = []
        try:
            super().__init__(**cleaned)
            # They were not given, so a copy with another table has another index.
            self.model_fields_set.difference_update(derived)
        except ValidationError as error:
            help_texts = {name: field.description or "" for name, field in fields.items()}
            problems = [field_problem(details, given, help_texts) for details in error.errors(include_url=False)]
        else:
            # "[]" is as empty as []
            parsed = {name: getattr(self, name) for name in cleaned}
            empty = {name for name, value in parsed.items() if isinstance(value, list | Mapping) and not value}
            cleaned = {name: value for name, value in cleaned.items() if name not in empty}
        problems += self._combination_problems(cleaned)
        if problems:
            verb = "parameter is" if len(problems) == 1 else "parameters are"
            raise ConfigError(f"{len(problems)} {verb} wrong", problems=problems)

    @classmethod
    def _derived(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults that depend on other parameters."""
        return {}

    @classmethod
    def _combination_problems(cls, given: Mapping[str, Any]) -> list[str]:
        """Problems of parameters that do not fit together; reported beside those of single parameters."""
        return []

    @property
    @abstractmethod
    def catalog(self) -> str:
        """Name of the Spark catalog."""

    @property
    @abstractmethod
    def subject(self) -> dict[str, str]:
        """The labels of a run in its log and metrics: `table` and `index`."""

    @property
    def warehouse_location(self) -> str:
        """The warehouse folder of the default catalog: `warehouse`, or a folder in the user's data folder."""
        if not self.warehouse:
            return str(user_folder("XDG_DATA_HOME", ".local/share") / "warehouse")
        return self.warehouse if "://" in self.warehouse else str(Path(self.warehouse).expanduser().absolute())

    def resolved_catalog_properties(self) -> dict[str, str]:
        """The catalog properties with every reference replaced by its secret."""
        return _without_credentials(self.catalog_properties.resolved("catalog_properties"), "catalog_properties")

    def resolved_spark_conf(self) -> dict[str, str]:
        """The Spark settings with every reference replaced by its secret."""
        return _without_credentials(self.spark_conf.resolved("spark_conf"), "spark_conf", urls.CATALOG_SETTINGS)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values for some parameters; it is checked again."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**given, **changes})

    def redacted(self) -> dict[str, Any]:
        """All parameters without secrets, for logs and reports."""
        return {name: redact(name, getattr(self, name)) for name in type(self).model_fields}

    def __repr_args__(self) -> Any:
        return list(self.redacted().items())

    __str__ = BaseModel.__repr__

    @field_serializer(
        *("catalog_properties", "spark_conf", "kafka_options", "routes", "table_properties"), check_fields=False
    )
    def _without_secrets(self, section: Properties) -> dict[str, Any]:
        return {key: redact(key, value) for key, value in section.items()}

    @classmethod
    def parameters(cls) -> list[Parameter]:
        """All parameters in order, for documentation, notebooks and the command line."""
        return [
            Parameter(
                name,
                _type_text(field.annotation),
                "" if field.is_required() else _plain(field.get_default(call_default_factory=True)),
                field.description or "",
            )
            for name, field in cls.model_fields.items()
        ]


def _without_credentials(resolved: dict[str, str], parameter: str, prefix: str = "") -> dict[str, str]:
    found = urls.find_urls_with_credentials(resolved, prefix)
    if found:
        raise ConfigError(
            "A reference leads to a URL with credentials in it (value not shown)",
            subject=f"{parameter}.{found[0]}",
            remedy=urls.URL_REMEDY,
        )
    return resolved


def _type_text(annotation: Any) -> str:
    if get_origin(annotation) in (Union, UnionType):
        annotation = get_args(annotation)[0]  # the other types are for Python only
    if annotation is Properties:
        return "dict[str, str]"
    if annotation in (str, int, float, bool):
        return str(annotation.__name__)
    return "str" if get_origin(annotation) is Literal else str(annotation).replace("typing.", "")


def _plain(default: Any) -> Any:
    return dict(default) if isinstance(default, Properties) else default

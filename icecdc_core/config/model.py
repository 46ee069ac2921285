"""`ParameterModel`, the base of all configurations: strings are converted, all problems reported, secrets hidden."""

import difflib
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from icecdc_core.config import values
from icecdc_core.dependencies import user_folder
from icecdc_core.errors import ConfigError, shorten
from icecdc_core.secrets import Properties, redact


def is_given(value: object) -> bool:
    """Whether a parameter has a value: an empty string, as of an empty widget, and None mean "not given"."""
    return value is not None and not (isinstance(value, str) and not value.strip())


def problems_error(problems: Iterable[str], where: str = "") -> ConfigError:
    listed = list(dict.fromkeys(problems))  # a problem of the defaults of a file is one of each index
    return ConfigError(f"{len(listed)} parameters are wrong{where}", problems=listed)


def _problem(details: ErrorDetails, help_texts: Mapping[str, str]) -> str:
    name = str(details["loc"][0]) if details["loc"] else "parameters"
    if name not in help_texts:
        near = next(iter(difflib.get_close_matches(name, help_texts, n=1)), "")
        hint = f"did you mean {near}" if near else "leave it out, or correct its name"
        # The value may be a secret under a misspelt name, so it is not shown.
        return f"{name}: unknown parameter. Remedy: {hint}."
    help_text = help_texts[name].rstrip(".")
    if details["type"] == "missing":
        return f"{name}: missing. Remedy: set it ({help_text})."
    context, message = details.get("ctx") or {}, details["msg"]
    shown = f" [{name}={shorten(repr(redact(name, details['input'])), 200)}]" if context.get("show", True) else ""
    described = "as a string (papermill: with -r)" if details["type"] == "string_type" else "as described"
    remedy = context.get("remedy") or f"set it {described}: {help_text}"
    return f"{name}: {message[:1].lower()}{message[1:]}{shown}. Remedy: {remedy}."


OptionalTableName = Annotated[str, AfterValidator(values.check_table_name)]
OptionalUrl = Annotated[str, AfterValidator(values.check_url)]
_REFERENCE = r"^(env:[A-Za-z_][A-Za-z0-9_]*|secret:[^/\s]+/\S+)?$"
SecretReference = Annotated[str, Field(pattern=_REFERENCE)]
Text = Annotated[str, AfterValidator(values.check_no_reference)]
_AsText = BeforeValidator(lambda value: os.fspath(value) if isinstance(value, os.PathLike) else value)
PathText = Annotated[Text, AfterValidator(values.expand_path), _AsText]
Names = Annotated[list[str], BeforeValidator(values.parse_column_names)]
_TEXTS = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
WithoutSecrets = PlainSerializer(lambda section: redact("", section))
AS_TEXTS = WithJsonSchema(_TEXTS)
TextMapping = Annotated[Properties, BeforeValidator(values.parse_properties), WithoutSecrets, AS_TEXTS]
LowerCase = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Bytes = Annotated[int, Field(ge=0, le=2**50)]
Seconds = Annotated[float, Field(ge=0, le=366 * 24 * 3600, allow_inf_nan=False)]


class ParameterModel(BaseModel):
    """Parameters of a job; frozen, and can be pickled to executors."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, use_attribute_docstrings=True)

    reads_kafka: ClassVar[bool] = False  # whether the session needs Spark's Kafka connector

    catalog_properties: Annotated[TextMapping, AfterValidator(values.check_urls)] = Properties()
    """Iceberg catalog properties, such as {"type":"rest","uri":"https://catalog"}; values may be env:NAME or
    secret:scope/key. Default: a JDBC catalog on SQLite in the warehouse folder."""
    warehouse: PathText = ""
    """Warehouse folder of the default catalog. Default: icecdc/warehouse in XDG_DATA_HOME or ~/.local/share."""
    report_path: PathText = ""
    """File for the report as JSON. Default: none is written."""
    log_path: PathText = ""
    """File for the structured log, JSON lines; - for the standard error. Default: none is written."""
    metrics_folder: PathText = ""
    """Folder for the metrics as Prometheus text, a file for each index and job. Default: none."""
    metrics_url: OptionalUrl = ""
    """http(s)://host:port of a Prometheus Pushgateway for the metrics. Default: none."""
    spark_conf: Annotated[TextMapping, AfterValidator(values.check_spark_conf)] = Properties()
    """Spark settings for a new session, a mapping or JSON object; values may be references."""

    def __init__(self, /, **given: Any) -> None:
        fields = type(self).model_fields
        cleaned = {name: value.strip() if isinstance(value, str) else value for name, value in given.items()}
        cleaned = {name: value for name, value in cleaned.items() if name not in fields or is_given(value)}
        derived = {name: value for name, value in self._derived(cleaned).items() if name not in cleaned}
        valid: dict[str, Any] = {}
        problems: list[str] = []
        try:
            self.__pydantic_validator__.validate_python({**derived, **cleaned}, self_instance=self, context=valid)
            # They were not given, so a copy with another table has another index.
            self.model_fields_set.difference_update(derived)
        except ValidationError as error:
            help_texts = {name: " ".join((field.description or "").split()) for name, field in fields.items()}
            problems = [_problem(details, help_texts) for details in error.errors(include_url=False)]
        wrong = [problem.partition(":")[0] for problem in problems]
        # One that names a wrong parameter may follow from that.
        problems += [
            problem
            for problem in self._combination_problems(valid)
            if not any(re.search(rf"\b{re.escape(name)}\b", problem) for name in wrong)
        ]
        if problems:
            raise problems_error(problems)

    @field_validator("*", mode="after")
    @classmethod
    def _collect(cls, value: Any, info: ValidationInfo) -> Any:
        """Keep the parameters that are right for `_combination_problems`, also if others are wrong."""
        if info.context is not None and not (isinstance(value, str | list | Mapping) and not value):
            info.context[info.field_name] = value
        return value

    @classmethod
    def _derived(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    @classmethod
    def _combination_problems(cls, given: Mapping[str, Any]) -> list[str]:
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
        if not self.warehouse:
            return str(user_folder("XDG_DATA_HOME", ".local/share") / "warehouse")
        warehouse = re.sub("^file:/+", "/", self.warehouse)
        return warehouse if is_remote(warehouse) else str(Path(warehouse).absolute())

    def resolved_catalog_properties(self) -> dict[str, str]:
        return _resolved("catalog_properties", self.catalog_properties, values.check_urls)

    def resolved_spark_conf(self) -> dict[str, str]:
        return _resolved("spark_conf", self.spark_conf, values.check_spark_conf)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values for some parameters; it is checked again."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**given, **changes})

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Pydantic's own, and that of `copy.replace`, would neither check nor derive anything."""
        return self.replace(**(update or {}))

    def __repr_args__(self) -> Any:
        return [(name, redact(name, getattr(self, name))) for name in type(self).model_fields]

    __str__ = BaseModel.__repr__


def is_remote(warehouse: str) -> bool:
    return re.match(r"[A-Za-z][\w+.-]+:/", warehouse) is not None  # also dbfs:/lake, but not C:/lake


def _resolved(parameter: str, given: Properties, check: Callable[[Properties], Properties]) -> dict[str, str]:
    """The real values; a secret may be a URL with credentials, which is refused like one that was given."""
    try:
        return dict(check(Properties(given.resolved(parameter))))
    except PydanticCustomError as error:
        raise ConfigError(
            f"A reference {error.message()}", subject=parameter, remedy="see catalog_properties"
        ) from None

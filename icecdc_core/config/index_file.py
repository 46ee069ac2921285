"""Files of many entries, indexes or ingests: YAML, defaults, the environment, entries that cannot be together."""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar, get_origin

import yaml

from icecdc_core.config.model import ParameterModel, is_given, problems_error
from icecdc_core.errors import ConfigError
from icecdc_core.secrets import REDACTED, Properties, looks_secret, redact

C = TypeVar("C", bound=ParameterModel)


@dataclass(frozen=True)
class FileKind:
    """What a file has below `defaults`: the section, the parameter that names an entry, and what is of one alone."""

    section: str
    entry: str
    name: str
    only_in_one: tuple[str, ...]


INDEXES = FileKind(
    "indexes", "index", "index", ("table", "index", "identifier_columns", "columns", "alias", "select", "nest", "embed")
)
INGESTS = FileKind(
    "ingests", "ingest", "job", ("job", "table", "topics", "topic_pattern", "routes", "starting_offsets")
)

# Positions, errors and reports show these texts, and no reference in them is resolved.
_EXPRESSIONS = ("select", "row_filter", "nest", "embed", "where", "route", "operation", "checks")
_SUBSTITUTION = re.compile(
    r"(?P<literal>\$\$\{)|\$\{env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\$\{"
)


def load_configurations(
    path: str | Path, kind: type[C], of: FileKind, only: Sequence[str], overrides: Mapping[str, Any]
) -> dict[str, C]:
    """Make the configurations of some entries of a file, in its order; of all if none is named."""
    content = _content(path, of)
    unknown = content.keys() - {"defaults", of.section}
    problems = [f"{key}: unknown. Remedy: the file has defaults and {of.section}." for key in unknown]
    listed = content.get(of.section)
    if not isinstance(listed, dict) or not all(map(str.strip, listed or [""])):
        remedy = f"list the {of.section} below it, with parameters"
        problems.append(f"{of.section}: missing, or one has no name. Remedy: {remedy}.")
        raise problems_error(problems, f" in '{path}'")
    for name in only:
        if name not in listed and (name or len(listed) > 1):
            several = f"'{path}' has several {of.section}, and none was chosen"
            raise ConfigError(
                f"'{path}' has no such {of.entry}" if name else several,
                subject=of.name,
                value=name,
                remedy=f"name one of {', '.join(listed)}",
            )
    chosen = [name or next(iter(listed)) for name in only] or list(listed)
    defaults = _section(content.get("defaults"), "defaults", kind, problems)
    of_one = [name for name in of.only_in_one if defaults.get(name) is not None]
    problems += [f"defaults.{name}: describes one {of.entry}. Remedy: move it there." for name in of_one]
    entries = {
        name: _section(entry, f"{of.section}.{name}", kind, problems if name in chosen else [])
        for name, entry in listed.items()
    }
    if problems:
        raise problems_error(problems, f" in '{path}'")
    given = {name: value for name, value in overrides.items() if is_given(value)}
    made: dict[str, C] = {}
    for name, entry in entries.items():
        merged = merge(defaults, entry)
        merged[of.name] = merged.get(of.name) or name
        try:
            # Others are made only to find those that share an output with a chosen one.
            made[name] = kind(**{**merged, **(given if name in chosen else {})})
        except ConfigError as error:
            for problem in error.problems if name in chosen else ():
                parameter = problem.partition(":")[0].partition(".")[0]
                in_defaults = parameter in defaults and parameter not in entry
                section = "" if parameter in given else "defaults." if in_defaults else f"{of.section}.{name}."
                problems.append(section + problem)
    problems += (_shared_outputs if of is INDEXES else _shared_jobs)(made, chosen)
    if problems:
        raise problems_error(problems, f" in '{path}'")
    return {name: config for name, config in made.items() if name in chosen}


def _section(given: Any, path: str, kind: type[ParameterModel], problems: list[str]) -> dict[str, Any]:
    if given is not None and not isinstance(given, dict):
        problems.append(f"{path}: is not a mapping. Remedy: write the parameters below it, name: value.")
        return {}
    fields = kind.model_fields
    return {
        name: _substituted(name, fields[name].annotation if name in fields else str, value, f"{path}.{name}", problems)
        for name, value in (given or {}).items()
    }


def _substituted(name: str, kind: Any, value: Any, where: str, problems: list[str]) -> Any:
    """The value with variables; a JSON text is read before, so that no variable becomes a part of the JSON."""
    is_json = (get_origin(kind) or kind) in (dict, list, Properties)
    if is_json and isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):  # the configuration refuses it, too
            value = json.loads(value)

    def substitute(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {key: substitute(item, f"{path}.{key}") for key, item in value.items()}
        if isinstance(value, list):
            return [substitute(item, path) for item in value]
        if not isinstance(value, str) or "${" not in value:
            return value
        matches = [match for match in _SUBSTITUTION.finditer(value) if not match["literal"]]
        variables = [match["name"] for match in matches if match["name"]]
        # As in a shell, the default also stands for an empty variable.
        text = _SUBSTITUTION.sub(
            lambda match: "${" if match["literal"] else os.environ.get(match["name"] or "") or match["default"] or "",
            value,
        )
        remedy = "write env:{0} as the whole value; it is read when it is needed"
        if name in _EXPRESSIONS:
            is_secret = any(map(looks_secret, variables))
            remedy = "leave {0} out: positions, errors and logs show expressions"
        elif kind is Properties:
            is_secret = any(redact(path[len(where) + 1 :], each) == REDACTED for each in (value, text))
        else:
            is_secret = looks_secret(name)
        if variables and is_secret:
            # The secret would be part of the configuration, which logs and reports show.
            problems.append(
                f"{path}: may hold a secret, so it must not be written into it from a variable (value not shown). "
                f"Remedy: {remedy.format(variables[0])}."
            )
            return text
        for match in matches:
            variable = match["name"]
            if not variable:
                remedy = "write ${env:NAME}, or $${ for a ${"
                problems.append(f"{path}: has ${{ that begins no reference. Remedy: {remedy}.")
            elif match["default"] is None and variable not in os.environ:
                remedy = f"export it, or write ${{env:{variable}:-default}}"
                problems.append(f"{path}: the environment variable {variable} is not set. Remedy: {remedy}.")
        return text

    return substitute(value, where)


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], Mapping) and isinstance(above[key], Mapping):
            merged[key] = merge(below[key], above[key])
    return merged


def _shared_outputs(made: Mapping[str, Any], chosen: Collection[str]) -> Iterator[str]:
    """The problems of two entries of one index that would overwrite it, or mix their dead letters."""
    for (owner, first), (name, second) in combinations(made.items(), 2):
        if first.index != second.index or {owner, name}.isdisjoint(chosen):
            continue
        share_dead_letters = (first.table, first.dead_letter_name) == (second.table, second.dead_letter_name)
        # Another positions_index is no other index: each entry would delete what the other one exported.
        if first.opensearch_url.lower() == second.opensearch_url.lower():
            yield (
                f"indexes.{name}.index: {second.index!r} is also the index of indexes.{owner}. "
                "Remedy: give one of them another index."
            )
        # Dead letters name index and table, but no cluster.
        elif {owner, name} <= {*chosen} and share_dead_letters:
            yield (
                f"indexes.{name}.dead_letter_table: is that of indexes.{owner}, whose index has this name, too. "
                "Remedy: give one of them another dead_letter_table or another index."
            )


def _shared_jobs(made: Mapping[str, Any], chosen: Collection[str]) -> Iterator[str]:
    """The problems of two entries that would be one job, of which each would skip what the other one read."""
    for (owner, first), (name, second) in combinations(made.items(), 2):
        if first.job == second.job and not {owner, name}.isdisjoint(chosen):
            yield f"ingests.{name}.job: is also the job of ingests.{owner}. Remedy: give one of them another job."


class _Loader(yaml.SafeLoader):
    """PyYAML's, but it refuses a key that occurs twice or is not a string."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:bool":  # `on`, a parameter of `nest`, is true in YAML 1.1
                key.tag = "tag:yaml.org,2002:str"
            problem = ""
            if key.tag not in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"):
                problem = "has a key that is not a string; write it in quotes"
            elif key.value in keys:
                problem = f"has the key {key.value!r} twice"
            if problem:
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            keys.add(key.value)
        return node


def _content(path: str | Path, of: FileKind) -> dict[str, Any]:
    try:
        content = yaml.load(Path(path).expanduser().read_text(encoding="utf-8-sig"), _Loader)  # noqa: S506 (safe)
        json.dumps(content, default=str)  # an anchor may not be inside itself
        if isinstance(content, dict):
            return content
        problem = f"has no {of.section}: at its top"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except (yaml.YAMLError, ValueError, RuntimeError) as error:
        # Not the error's own text: it repeats lines of the file, which may hold secrets.
        mark = getattr(error, "problem_mark", None)
        at = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        problem = f"is not YAML: {getattr(error, 'problem', None) or 'a value cannot be read'}{at}"
    raise ConfigError(
        f"The {of.entry} file {problem}",
        subject=f"{of.entry}_file",
        value=str(path),
        remedy=f"name a YAML file that this machine can read, with {of.section}: at its top and the {of.section} below",
    )

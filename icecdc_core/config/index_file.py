"""Index files: YAML, defaults, references to the environment, and entries that cannot be together.

In: a file such as `indexes.yml`. Out: the parameters of each index.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml
from pydantic_core import PydanticCustomError

from icecdc_core.config.model import ParameterModel
from icecdc_core.config.values import parse_json_array, parse_json_object
from icecdc_core.errors import ConfigError
from icecdc_core.secrets import REDACTED, looks_secret, redact

C = TypeVar("C", bound=ParameterModel)

ONLY_IN_AN_INDEX = ("table", "index", "identifier_columns", "columns", "alias", "select")
"""Parameters that describe one table and its documents, so `defaults` must not have them."""

_SECTIONS = ("defaults", "indexes")
# Positions, errors and reports show these texts, and no reference in them is resolved.
_EXPRESSIONS = ("select", "row_filter")
_SUBSTITUTION = re.compile(
    r"(?P<literal>\$\$\{)|\$\{env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<has_default>:-(?P<default>[^}]*))?\}|\$\{"
)
_MOST_VALUES = 100_000


class _Section(NamedTuple):
    """The parameters of `defaults` or of one index, and those that could not be read, each with what is wrong."""

    place: str
    parameters: dict[str, Any]
    problems: dict[str, list[str]]


class IndexFile:
    """An index file as it was read; the parameters themselves are checked when configurations are made."""

    def __init__(self, path: str | Path, kind: type[ParameterModel]) -> None:
        self._path = path
        self._types = {parameter.name: parameter.type for parameter in kind.parameters()}
        content = _content(path)
        self._problems = [_unknown(key, key, _SECTIONS) for key in content if key not in _SECTIONS]
        indexes = content.get("indexes")
        if not isinstance(indexes, dict) or not indexes:
            missing = "indexes: missing. Remedy: list the indexes below it, each with its parameters."
            raise self._error([*self._problems, missing])
        if any(not name.strip() for name in indexes):
            self._problems.append("indexes: has a blank name. Remedy: name every index.")
        self._defaults = self._section(content.get("defaults"), "defaults")
        for name in ONLY_IN_AN_INDEX:
            if self._defaults.parameters.pop(name, None) is not None:
                problem = f"defaults.{name}: describes one index. Remedy: move it to the index."
                self._defaults.problems[name] = [problem]
        self._entries = {name: self._section(entry, f"indexes.{name}") for name, entry in indexes.items()}

    @property
    def names(self) -> list[str]:
        """The names of the indexes, in the order of the file."""
        return list(self._entries)

    def resolve_name(self, name: str) -> str:
        """Return the name of an index of the file; "" is the only one."""
        if name in self._entries or (not name and len(self._entries) == 1):
            return name or self.names[0]
        near = difflib.get_close_matches(name, self.names, n=1)
        raise ConfigError(
            f"'{self._path}' has no such index" if name else f"'{self._path}' has several indexes, and none was chosen",
            subject="index",
            value=name,
            remedy=f"{f'did you mean {near[0]}; ' if near else ''}name one of {', '.join(self.names)}",
        )

    def texts(self, parameter: str, only: Collection[str] = ()) -> list[str]:
        """Return the values of a text parameter, also if others are wrong."""
        entries = [entry for name, entry in self._entries.items() if not only or name in only]
        found = [self._section_of(entry, parameter).parameters.get(parameter) for entry in entries]
        return list(dict.fromkeys(value for value in found if isinstance(value, str) and value))

    def configurations(self, kind: type[C], only: Collection[str], overrides: Mapping[str, Any]) -> dict[str, C]:
        """Make the configurations of indexes."""
        given = {name: value for name, value in overrides.items() if value is not None and value != ""}
        made: dict[str, C] = {}
        problems = [*self._problems, *(text for texts in self._defaults.problems.values() for text in texts)]
        for name, entry in self._entries.items():
            found = [text for texts in entry.problems.values() for text in texts]
            try:
                merged = merge(self._defaults.parameters, entry.parameters)
                merged["index"] = merged.get("index") or name
                # Others are made only to find those that share an index with a chosen one.
                made[name] = kind(**{**merged, **(given if name in only else {})})
            except ConfigError as error:
                found += self._placed(error.problems, entry, given)
            if name in only:
                problems += found
        problems += _overwritten_indexes(made, only)
        chosen = {name: config for name, config in made.items() if name in only}
        problems += _mixed_outputs(chosen)
        if problems:
            raise self._error(problems)
        return chosen

    def _error(self, problems: Iterable[str]) -> ConfigError:
        listed = list(dict.fromkeys(problems))  # a problem of the defaults is one of each index
        return ConfigError(f"{len(listed)} problems in '{self._path}'", problems=listed)

    def _section(self, given: Any, place: str) -> _Section:
        section = _Section(place, {}, {})
        if given is not None and not isinstance(given, dict):
            section.problems[""] = [f"{place}: is not a mapping. Remedy: write the parameters below it, name: value."]
            return section
        for name, value in (given or {}).items():
            where, problems = f"{place}.{name}", list[str]()
            if name not in self._types:
                problems.append(_unknown(name, where, list(self._types)))
            else:
                substituted = self._substituted(name, value, where, problems)
                if not problems:
                    section.parameters[name] = substituted
            if problems:
                section.problems[name] = problems
        return section

    def _substituted(self, name: str, value: Any, where: str, problems: list[str]) -> Any:
        """The value with variables; a JSON text is read before, so that no variable becomes a part of the JSON."""
        kind = self._types[name]
        try:
            if kind.startswith("dict") and isinstance(value, str) and value:
                value = parse_json_object(value)
            elif kind.startswith("list") and isinstance(value, str) and value.startswith("["):
                value = parse_json_array(value, "")
        except PydanticCustomError:
            return value  # the configuration refuses it, too

        def is_secret(place: str, text: str, variables: Sequence[str]) -> bool:
            if name in _EXPRESSIONS:
                return any(map(looks_secret, variables))
            if kind != "dict[str, str]":
                return looks_secret(name)
            return redact(place[len(where) + 1 :], text) == REDACTED

        def substitute(value: Any, place: str) -> Any:
            if isinstance(value, dict):
                return {key: substitute(item, f"{place}.{key}") for key, item in value.items()}
            if isinstance(value, list):
                return [substitute(item, place) for item in value]
            if not isinstance(value, str) or "${" not in value:
                return value
            matches = list(_SUBSTITUTION.finditer(value))
            variables = [match["name"] for match in matches if match["name"]]
            found: list[str] = []
            text = _SUBSTITUTION.sub(lambda match: _text_of(match, place, found), value)
            if variables and (is_secret(place, value, variables) or is_secret(place, text, variables)):
                # The secret would be part of the configuration, which logs and reports show.
                remedy = f"write env:{variables[0]} as the whole value; it is read when it is needed"
                if name in _EXPRESSIONS:
                    remedy = f"leave {variables[0]} out: positions, errors and logs show expressions"
                hidden = "may hold a secret, so it must not be written into it from a variable (value not shown)"
                found = [f"{place}: {hidden}. Remedy: {remedy}."]
            problems.extend(found)
            return text

        return substitute(value, where)

    def _section_of(self, entry: _Section, name: str) -> _Section:
        """The section that the parameter of an index is from."""
        is_inherited = name in self._defaults.parameters and name not in entry.parameters
        return self._defaults if is_inherited else entry

    def _placed(self, problems: Sequence[str], entry: _Section, overrides: Mapping[str, Any]) -> Iterator[str]:
        """The problems with the place in the file that they are about; those of overrides stay as they are."""
        for problem in problems:
            name = problem.partition(":")[0]
            if name in overrides or name not in self._types:
                yield problem
            # A value that could not be read has its problem already.
            elif name not in entry.problems and (name in entry.parameters or name not in self._defaults.problems):
                yield f"{self._section_of(entry, name).place}.{problem}"


def merge(below: Mapping[str, Any], above: Mapping[str, Any], *, is_mapping: bool = False) -> dict[str, Any]:
    """Return the parameters of an index over the defaults: nested mappings are merged, too."""
    merged = dict(below)
    for key, value in above.items():
        lower = below.get(key)
        inside = is_mapping or key == "mapping"
        merged[key] = value
        if isinstance(lower, Mapping) and isinstance(value, Mapping) and not (inside and _other_type(lower, value)):
            merged[key] = merge(lower, value, is_mapping=inside)
    return merged


def _other_type(below: Mapping[str, Any], above: Mapping[str, Any]) -> bool:
    """Whether a field gets another type: it has other options, so it keeps none of the defaults."""
    types = [field.get("type") for field in (below, above)]
    return all(isinstance(each, str) for each in types) and types[0] != types[1]


def _text_of(match: re.Match[str], place: str, problems: list[str]) -> str:
    """What stands for a reference to a variable."""
    if match["literal"]:
        return "${"
    if not match["name"]:
        problems.append(f"{place}: has ${{ that begins no reference. Remedy: write ${{env:NAME}}, or $${{ for a ${{.")
        return ""
    text = os.environ.get(match["name"])
    # As in a shell, the default also stands for an empty variable.
    text = match["default"] if match["has_default"] and not text else text
    if text is None:
        problems.append(
            f"{place}: the environment variable {match['name']} is not set. "
            f"Remedy: export it, or write ${{env:{match['name']}:-default}}."
        )
    return text or ""


def _overwritten_indexes(made: Mapping[str, Any], only: Collection[str]) -> Iterator[str]:
    """The problems of entries that have the index of an entry before them, where one of both was chosen."""
    for (owner, first), (name, second) in combinations(made.items(), 2):
        # Another positions_index is no other index: each entry would delete what the other one exported.
        if first.index == second.index and _cluster(first) == _cluster(second) and not {owner, name}.isdisjoint(only):
            problem = f"indexes.{name}.index: {second.index!r} is also the index of indexes.{owner}"
            yield f"{problem}. Remedy: give one of them another index."


def _mixed_outputs(chosen: Mapping[str, Any]) -> Iterator[str]:
    """The problems of indexes of one name, on different clusters, that would mix their dead letters or metrics."""
    for (owner, first), (name, second) in combinations(chosen.items(), 2):
        if first.index != second.index or _cluster(first) == _cluster(second):
            continue
        # Dead letters name index and table, but no cluster; metrics name a job and an index.
        is_shared = {
            "dead_letter_table": (first.table, first.dead_letter_parts) == (second.table, second.dead_letter_parts)
        }
        for metrics in ("metrics_folder", "metrics_url"):
            is_shared[metrics] = getattr(first, metrics) == getattr(second, metrics) != ""
        for parameter in (name for name, shared in is_shared.items() if shared):
            yield (
                f"indexes.{name}.{parameter}: is the same as in indexes.{owner}, which also has the index "
                f"{first.index!r}. Remedy: give one of them another {parameter} or another index."
            )


def _cluster(config: Any) -> str:
    return str(config.opensearch_url).lower()


def _content(path: str | Path) -> dict[str, Any]:
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, RuntimeError, ValueError) as error:  # no home folder; a path or a text with wrong bytes
        reason = error.strerror if isinstance(error, OSError) else "its path or its text is not valid UTF-8"
        raise _file_error(path, f"cannot be read: {reason}", "name a YAML file that this machine can read") from error
    try:
        content = _read_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Not the error's own text: it repeats lines of the file, which may hold secrets.
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "a value cannot be read"
        raise _file_error(path, f"is not YAML: {reason}{place}", "correct the line; indent with blanks") from None
    if not isinstance(content, dict):
        kind = "empty" if content is None else f"a {type(content).__name__}, not a mapping"
        raise _file_error(path, f"is {kind}", "write indexes: at its top, and the indexes below it")
    return content


def _read_yaml(text: str) -> Any:
    """Read a YAML document as PyYAML does, but refuse a key that occurs twice and aliases without end."""
    loader = yaml.SafeLoader(text)
    root = loader.get_single_node()
    left, count = [root] if root else [], 0
    while left:
        node, count = left.pop(), count + 1
        if count > _MOST_VALUES:
            raise yaml.MarkedYAMLError(problem="repeats values by aliases too often", problem_mark=node.start_mark)
        if isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, _ in node.value:
                if key.tag not in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"):
                    problem = "has a key that is not a string; write it in quotes"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                if key.value in keys:
                    problem = f"has the key {key.value!r} twice"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                keys.add(key.value)
            left += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            left += node.value
    return loader.construct_document(root) if root else None


def _unknown(name: str, where: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}" if near else "see docs/indexes.md for all that there is"
    # The value may be a secret under a misspelt name, so it is not shown.
    return f"{where}: unknown parameter. Remedy: {hint}."


def _file_error(path: str | Path, problem: str, remedy: str) -> ConfigError:
    return ConfigError(f"The index file {problem}", subject="index_file", value=str(path), remedy=remedy)

"""The index file, `indexes.yml`: the parameters of one or many indexes, and what they share.

In: a YAML file with `defaults` and `indexes`. Out: one configuration for each index, or one `ConfigError` that lists
the problems of all of them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic_core import PydanticCustomError

from icecdc_core.config.index_files.conflicts import find_mixed_outputs, find_overwritten_indexes
from icecdc_core.config.index_files.defaults import with_defaults
from icecdc_core.config.index_files.environment import substitute_variables
from icecdc_core.config.index_files.strict_yaml import read_yaml
from icecdc_core.config.model import ParameterModel
from icecdc_core.config.parsing.json_values import parse_json_array, parse_json_object
from icecdc_core.errors import ConfigError
from icecdc_core.secrets import REDACTED, looks_secret, redact

C = TypeVar("C", bound=ParameterModel)

ONLY_IN_AN_INDEX = ("table", "index", "identifier_columns", "columns", "alias", "select")
"""Parameters that describe one table and its documents, so `defaults` must not have them."""

_JSON = ("mapping", "settings")
# Positions, errors and reports show these texts, and no reference in them is resolved.
_EXPRESSIONS = ("select", "row_filter")
_KEEP_OUT = (
    "leave {} out, as positions, errors and logs show expressions; for a keyed hash make select a Python function that "
    "reads the key"
)
_VARIABLE = re.compile(r"\$\{env:(\w+)")
_SECTIONS = ("defaults", "indexes")


class _Section(NamedTuple):
    """The parameters of `defaults` or of one index, with the problems that were found in reading them."""

    parameters: dict[str, Any]
    problems: list[str]


class IndexFile:
    """An index file as it was read; the parameters themselves are checked when configurations are made."""

    def __init__(self, path: str | Path, kind: type[ParameterModel]) -> None:
        self._path = path
        self._types = {parameter.name: parameter.type for parameter in kind.parameters()}
        content = _content(path)
        unknown = [_unknown(key, key, _SECTIONS) for key in content if key not in _SECTIONS]
        indexes = content.get("indexes")
        if not isinstance(indexes, dict) or not indexes:
            missing = "indexes: missing. Remedy: list the indexes below it, each with its parameters."
            raise _file_error(path, [*unknown, missing])
        self._defaults = self._section(content.get("defaults"), "defaults")
        self._defaults.problems[:0] = unknown
        for name in ONLY_IN_AN_INDEX:
            if self._defaults.parameters.pop(name, None) is not None:
                problem = f"defaults.{name}: describes one index. Remedy: move it to the index."
                self._defaults.problems.append(problem)
        if any(not name.strip() for name in indexes):
            self._defaults.problems.append("indexes: has a blank name. Remedy: name every index.")
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
        found = []
        for name, entry in self._entries.items():
            given = parameter in entry.parameters
            section, place = (entry, f"indexes.{name}") if given else (self._defaults, "defaults")
            value = section.parameters.get(parameter)
            is_wrong = any(problem.startswith(f"{place}.{parameter}:") for problem in section.problems)
            if (not only or name in only) and isinstance(value, str) and value and not is_wrong:
                found.append(value)
        return list(dict.fromkeys(found))

    def configurations(self, kind: type[C], only: Collection[str], overrides: Mapping[str, Any]) -> dict[str, C]:
        """Make the configurations of indexes."""
        given = {name: value for name, value in overrides.items() if value is not None and value != ""}
        made: dict[str, C] = {}
        problems = list(self._defaults.problems)
        for name, entry in self._entries.items():
            found = list(entry.problems)
            try:
                merged = with_defaults(self._defaults.parameters, entry.parameters)
                merged["index"] = merged.get("index") or name
                # Others are made only to find those that share an index with a chosen one.
                made[name] = kind(**{**merged, **(given if name in only else {})})
            except ConfigError as error:
                found += self._placed(error.problems, name, given)
            if name in only:
                problems += found
        problems += [problem for name, problem in find_overwritten_indexes(made) if name in only]
        chosen = {name: config for name, config in made.items() if name in only}
        problems += find_mixed_outputs(chosen)
        if problems:
            raise _file_error(self._path, problems)
        return chosen

    def _section(self, given: Any, place: str) -> _Section:
        if given is not None and not isinstance(given, dict):
            return _Section({}, [f"{place}: is not a mapping. Remedy: write the parameters below it, name: value."])
        section = _Section({}, [])
        for name, value in (given or {}).items():
            where = f"{place}.{name}"
            if name not in self._types:
                section.problems.append(_unknown(name, where, list(self._types)))
                continue
            try:
                parsed = self._parsed(name, value)
            except PydanticCustomError as error:
                remedy = (error.context or {}).get("remedy", "")
                section.problems.append(f"{where}: {error.message()}. Remedy: {remedy}.")
                continue
            remedy = {"remedy": _KEEP_OUT} if name in _EXPRESSIONS else {}
            section.parameters[name] = substitute_variables(
                parsed, where, section.problems, self._secrets(name, where), **remedy
            )
        return section

    def _parsed(self, name: str, value: Any) -> Any:
        """The value with JSON texts read, before variables are put in: they must not become a part of the JSON."""
        if value in (None, ""):
            return value
        if self._types[name].startswith("dict"):
            return parse_json_object(value)
        if self._types[name].startswith("list") and isinstance(value, str) and value.startswith("["):
            return parse_json_array(value, 'write ["a","b"]')
        return value

    def _secrets(self, name: str, where: str) -> Any:
        """Whether a text of this parameter may hold a secret, by its place below the parameter."""
        if name in _EXPRESSIONS:
            return lambda _, text: any(looks_secret(variable) for variable in _VARIABLE.findall(text))
        if self._types[name] != "dict[str, str]":
            return lambda _, text: looks_secret(name)
        return lambda place, text: redact(place[len(where) + 1 :], text) == REDACTED

    def _placed(self, problems: Sequence[str], index: str, overrides: Mapping[str, Any]) -> list[str]:
        """The problems with the place in the file that they are about; those of overrides stay as they are."""
        entry, placed = self._entries[index], []
        known = (*self._defaults.problems, *entry.problems)
        for problem in problems:
            name = problem.partition(":")[0]
            if name in overrides or name not in self._types:
                placed.append(problem)
                continue
            inherited = name in self._defaults.parameters and name not in entry.parameters
            place = "defaults" if inherited else f"indexes.{index}"
            # A value that could not be read has its problem already.
            if not any(other.startswith((f"{place}.{name}:", f"{place}.{name}.")) for other in known):
                placed.append(f"{place}.{problem}")
        return placed


def _content(path: str | Path) -> dict[str, Any]:
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, RuntimeError, ValueError) as error:  # no home folder; a path or a text with wrong bytes
        reason = error.strerror if isinstance(error, OSError) else "its path or its text is not valid UTF-8"
        raise ConfigError(
            f"The index file cannot be read: {reason}",
            subject="index_file",
            value=str(path),
            remedy="name a YAML file that this machine can read",
        ) from error
    try:
        content = read_yaml(text, lambda keys: _parameter(keys) in _JSON)
    except ConfigError as error:
        error.problems = [f"{path}: {problem}" for problem in error.problems]
        raise
    if not isinstance(content, dict):
        found = "empty" if content is None else f"a {'list' if isinstance(content, list) else 'string'}, not a mapping"
        raise ConfigError(
            f"The index file is {found}",
            subject="index_file",
            value=str(path),
            remedy="write indexes: at its top, and the indexes below it",
        )
    return content


def _parameter(keys: Sequence[str]) -> str:
    """The parameter that the value below these keys belongs to."""
    return next(iter(keys[2 if keys[:1] == ("indexes",) else 1 :]), "")


def _unknown(name: str, where: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}" if near else "see docs/indexes.md for all that there is"
    # The value may be a secret under a misspelt name, so it is not shown.
    return f"{where}: unknown parameter. Remedy: {hint}."


def _file_error(path: str | Path, problems: Iterable[str]) -> ConfigError:
    listed = list(dict.fromkeys(problems))  # a problem of the defaults is one of each index
    return ConfigError(f"{len(listed)} problems in '{path}'", problems=listed)

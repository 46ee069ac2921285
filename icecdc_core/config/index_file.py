"""Index files: strict YAML, defaults, references to the environment, and entries that cannot be together.

In: a file such as `indexes.yml`. Out: the parameters of each index.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml
from pydantic_core import PydanticCustomError

from icecdc_core.config.model import ParameterModel
from icecdc_core.config.values import iterate_leaves, parse_json_array, parse_json_object
from icecdc_core.errors import ConfigError
from icecdc_core.secrets import REDACTED, looks_secret, redact


def find_overwritten_indexes(made: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """The indexes that an index before them in the file has already, by name, with the problem."""
    owners: dict[tuple[str, ...], str] = {}
    for name, config in made.items():
        # Another positions_index is no other index: each entry would delete what the other one exported.
        key = (config.opensearch_url.lower(), config.index)
        owner = owners.setdefault(key, name)
        if owner != name:
            problem = f"indexes.{name}.index: {config.index!r} is also the index of indexes.{owner}"
            for either in (name, owner):
                yield either, f"{problem}. Remedy: give one of them another index."


def find_mixed_outputs(chosen: Mapping[str, Any]) -> list[str]:
    """The problems of indexes of one name, on different clusters, that would mix their dead letters or metrics."""
    problems = []
    for (owner, first), (name, second) in combinations(chosen.items(), 2):
        if first.index != second.index or first.opensearch_url.lower() == second.opensearch_url.lower():
            continue
        shared = {
            # Dead letters name index and table, but no cluster; metrics name a job and an index.
            "dead_letter_table": _dead_letter_key(first) == _dead_letter_key(second),
            "metrics_folder": bool(first.metrics_folder) and _folder(first) == _folder(second),
            "metrics_url": bool(first.metrics_url) and first.metrics_url == second.metrics_url,
        }
        problems += [
            f"indexes.{name}.{parameter}: is the same as in indexes.{owner}, which also has the index {first.index!r}. "
            f"Remedy: give one of them another {parameter} or another index."
            for parameter, is_shared in shared.items()
            if is_shared
        ]
    return problems


def _dead_letter_key(config: Any) -> tuple[object, ...]:
    return config.table, config.dead_letter_parts


def _folder(config: Any) -> Path:
    return Path(config.metrics_folder).absolute()


_AS_PARAMETERS = ("number_of_shards", "number_of_replicas")


def with_defaults(defaults: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an index."""
    below = dict(defaults)
    own = {name for name in _AS_PARAMETERS if name in entry}
    if isinstance(given := entry.get("settings"), Mapping):
        own |= {path.removeprefix("index.") for path, _ in iterate_leaves(given)}
        below = {name: value for name, value in below.items() if name not in _AS_PARAMETERS or name not in own}
    if isinstance(settings := below.get("settings"), Mapping):
        below["settings"] = _without(settings, own, "")
    merged = _merge_mappings(below, entry)
    if isinstance(fields := entry.get("mapping"), Mapping) and isinstance(below.get("mapping"), Mapping):
        merged["mapping"] = _merge_fields(below["mapping"], fields)
    return merged


def _without(settings: Mapping[str, Any], names: Collection[str], prefix: str) -> dict[str, Any]:
    """Nested settings without those of these dotted names."""
    left: dict[str, Any] = {}
    for name, value in settings.items():
        path = f"{prefix}{name}".removeprefix("index.")
        if isinstance(value, Mapping) and value:
            inner = _without(value, names, "" if path == "index" else f"{path}.")
            left |= {name: inner} if inner else {}
        elif path not in names:
            left[name] = value
    return left


def _merge_mappings(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        lower = below.get(key)
        merged[key] = (
            _merge_mappings(lower, value) if isinstance(lower, Mapping) and isinstance(value, Mapping) else value
        )
    return merged


def _merge_fields(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, field in above.items():
        lower = below.get(name)
        if isinstance(lower, Mapping) and isinstance(field, Mapping):
            merged[name] = _merge_field(lower, field)
        else:
            merged[name] = field
    return merged


def _merge_field(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """A field of another type has other options, so it keeps none of the defaults."""
    if "type" in below and "type" in above and below["type"] != above["type"]:
        return dict(above)
    merged = _merge_mappings(below, above)
    for inner in ("properties", "fields"):
        if isinstance(below.get(inner), Mapping) and isinstance(above.get(inner), Mapping):
            merged[inner] = _merge_fields(below[inner], above[inner])
    return merged


_SUBSTITUTION = re.compile(
    r"(?P<literal>\$\$\{)|\$\{env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<has_default>:-(?P<default>[^}]*))?\}|\$\{"
)


def substitute_variables(
    value: Any,
    place: str,
    problems: list[str],
    is_secret: Callable[[str, str], bool] = lambda place, text: False,
    remedy: str = "write env:{} as the whole value; it is read when it is needed",
) -> Any:
    """Replace `${env:NAME}` and `${env:NAME:-default}` in all texts of a value; `$${` is a literal `${`.

    The values are read from YAML before, and what is put in is not looked at again, so a variable can hold any text.
    """
    if isinstance(value, dict):
        return {
            key: substitute_variables(item, f"{place}.{key}", problems, is_secret, remedy)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [substitute_variables(item, place, problems, is_secret, remedy) for item in value]
    if not isinstance(value, str) or "${" not in value:
        return value
    names: list[str] = []
    found: list[str] = []

    def text_of(match: re.Match[str]) -> str:
        if match["literal"]:
            return "${"
        if not match["name"]:
            found.append(f"{place}: has ${{ that begins no reference. Remedy: write ${{env:NAME}}, or $${{ for a ${{.")
            return ""
        names.append(match["name"])
        text = os.environ.get(match["name"])
        # As in a shell, the default also stands for an empty variable.
        text = match["default"] if match["has_default"] and not text else text
        if text is None:
            found.append(
                f"{place}: the environment variable {match['name']} is not set. "
                f"Remedy: export it, or write ${{env:{match['name']}:-default}}."
            )
        return text or ""

    result = _SUBSTITUTION.sub(text_of, value)
    if names and (is_secret(place, value) or is_secret(place, result)):
        # The secret would be part of the configuration, which logs and reports show.
        found = [
            f"{place}: may hold a secret, so it must not be written into it from a variable (value not shown). "
            f"Remedy: {remedy.format(names[0])}."
        ]
    problems += found
    return result


_MOST_VALUES = 100_000
_PREFIX = "tag:yaml.org,2002:"
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,99})(\.[0-9]{1,99})?([eE][-+]?[0-9]{1,2})?")
_PLAIN = re.compile(r"true|True|TRUE|false|False|FALSE|" + _NUMBER.pattern)
_NULL = re.compile(r"~|null|Null|NULL|")


class _Loader(yaml.SafeLoader):
    """PyYAML's parser with fewer special texts: `no`, dates and numbers such as 010 stay texts."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  # PyYAML's own name, replaced and not shared


_Loader.add_implicit_resolver(f"{_PREFIX}merge", re.compile("<<"), ["<"])
_Loader.add_implicit_resolver(f"{_PREFIX}null", re.compile(f"({_NULL.pattern})\\Z"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(f"{_PREFIX}json", re.compile(f"({_PLAIN.pattern})\\Z"), list("tTfF-0123456789"))


def read_yaml(text: str, is_json: Callable[[tuple[str, ...]], bool]) -> Any:
    """Read a YAML document: mappings, lists, texts, and null.

    Numbers and booleans stay the texts that the file has, because every parameter accepts texts. Where JSON is
    expected, they are what JSON makes of them.
    """
    loader: Any = None
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        return None if root is None else _Reader(is_json).value(root, ())
    except yaml.YAMLError as error:
        # Not the error's own text: it repeats lines of the file, which may hold secrets.
        mark = getattr(error, "problem_mark", None)
        before = text[: getattr(error, "position", 0)]
        line = mark.line + 1 if mark else before.count("\n") + 1
        column = mark.column + 1 if mark else len(before) - before.rfind("\n")
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
        raise _yaml_error(f"is not YAML: {problem}", line, column, "correct the line; indent with blanks") from None
    except RecursionError:
        raise _yaml_error("is nested too deeply", 1, 1, "write fewer levels") from None
    finally:
        if loader is not None:
            loader.dispose()


class _Reader:
    """Makes plain values of PyYAML's nodes."""

    def __init__(self, is_json: Callable[[tuple[str, ...]], bool]) -> None:
        self._is_json = is_json
        self._count = 0
        self._open: list[yaml.Node] = []

    def value(self, node: yaml.Node, path: tuple[str, ...]) -> Any:
        self._count += 1
        if self._count > _MOST_VALUES or any(node is outer for outer in self._open):
            # Aliases can repeat each other without end.
            raise _yaml_error_at(node, "repeats values by aliases too often", "write them out")
        self._open.append(node)
        try:
            if isinstance(node, yaml.MappingNode) and node.tag == f"{_PREFIX}map":
                return {key: self.value(item, (*path, key)) for key, item in self._items(node).items()}
            if isinstance(node, yaml.SequenceNode) and node.tag == f"{_PREFIX}seq":
                return [self.value(item, path) for item in node.value]
            return self._scalar(node, path)
        finally:
            self._open.pop()

    def _scalar(self, node: yaml.Node, path: tuple[str, ...]) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            raise _yaml_error_at(node, f"has the tag {node.tag!r}", "write plain mappings and lists")
        if node.tag == f"{_PREFIX}null":
            return None
        if node.tag == f"{_PREFIX}json" and self._is_json(path) and _PLAIN.fullmatch(node.value):
            return json.loads(node.value.lower())
        if node.tag in (f"{_PREFIX}json", f"{_PREFIX}str", f"{_PREFIX}merge"):
            return node.value
        raise _yaml_error_at(node, f"has the tag {node.tag!r}", "write the value without a tag, or in quotes")

    def _items(self, node: yaml.MappingNode) -> dict[str, yaml.Node]:
        """The keys of a mapping and their values, those of merge keys (`<<`) after its own."""
        own: dict[str, yaml.Node] = {}
        merged: dict[str, yaml.Node] = {}
        for key, item in node.value:
            if key.tag == f"{_PREFIX}merge":
                for source in item.value if isinstance(item, yaml.SequenceNode) else [item]:
                    merged = {**self._merged(source), **merged}
                continue
            if not isinstance(key, yaml.ScalarNode) or key.tag == f"{_PREFIX}null":
                raise _yaml_error_at(key, "has a key that is not a string", "use a string as the key")
            if key.value in own:
                raise _yaml_error_at(key, f"has the key {key.value!r} twice", "keep one of them")
            own[key.value] = item
        return {**own, **{key: item for key, item in merged.items() if key not in own}}

    def _merged(self, source: yaml.Node) -> dict[str, yaml.Node]:
        self._count += 1
        if not isinstance(source, yaml.MappingNode) or self._count > _MOST_VALUES:
            raise _yaml_error_at(source, "merges (<<) what is not a mapping", "name the anchor of a mapping")
        if any(source is outer for outer in self._open):
            raise _yaml_error_at(source, "merges (<<) a mapping into itself", "name another anchor")
        self._open.append(source)
        try:
            return self._items(source)
        finally:
            self._open.pop()


def _yaml_error_at(node: yaml.Node, message: str, remedy: str) -> ConfigError:
    return _yaml_error(message, node.start_mark.line + 1, node.start_mark.column + 1, remedy)


def _yaml_error(message: str, line: int, column: int, remedy: str) -> ConfigError:
    return ConfigError(f"The index file {message} (line {line}, column {column})", remedy=remedy)


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

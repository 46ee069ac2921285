"""YAML as index files use it: every key once, and no text that silently becomes another value; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import yaml

from icecdc_core.errors import ConfigError

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

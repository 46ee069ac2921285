"""What the arguments of the command line ask for; no error text repeats a value, because it may be a secret."""

from __future__ import annotations

import difflib
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from icecdc_core.cli.commands import COMMANDS, SERVICES
from icecdc_core.config import SyncConfig
from icecdc_core.config.model import ParameterModel
from icecdc_core.errors import ConfigError

DEFAULT_PARALLEL = 2
_MOST_PARALLEL = 64
_OPTION = re.compile(r"--[A-Za-z0-9_-]*")
_FLAGS = ("json", "verbose", "help", "version")
_OF_FILE = ("file", "only", "parallel")
_FALSE = {"", "false", "0", "no", "off", "f", "n"}
_BOOLEANS = {"true", "1", "yes", "on", "t", "y"} | _FALSE


@dataclass
class Request:
    """What the command line asks for."""

    command: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    file: str = ""
    only: list[str] = field(default_factory=list)
    parallel: int = DEFAULT_PARALLEL


def parse(arguments: Sequence[str]) -> Request:
    """Read the command and its options.

    An option is ``--name value`` or ``--name=value``. A boolean needs no value: ``--dry-run``, ``--no-dry-run``.
    """
    first = arguments[0] if arguments else ""
    kind = COMMANDS[first].kind if first in COMMANDS else SyncConfig
    request = Request()
    problems: list[str] = []
    given: dict[str, str] = {}
    left = deque(arguments)
    while left:
        text = left.popleft()
        if text == "-h":
            request.flags.add("help")
        elif not text.startswith("--"):
            if request.command:
                problems.append("There is a value without an option (not shown). Remedy: write --name value.")
            else:
                request.command = text
        elif (problem := _read(text, left, kind, request, given)) is not None:
            problems.append(problem)
    if not problems and request.flags & {"help", "version"}:
        return request
    problems += _command_problems(request.command, kind)
    for name in _OF_FILE:
        if name in given and (problem := _file_option(request, name, given.pop(name))):
            problems.append(problem)
    request.parameters = given
    problems += [] if problems else _combination_problems(request)
    if problems:
        raise ConfigError(f"{len(problems)} options are wrong", problems=problems)
    request.parameters |= COMMANDS[request.command].fixed
    return request


def _read(
    text: str, left: deque[str], kind: type[ParameterModel], request: Request, given: dict[str, str]
) -> str | None:
    """Read one option, and its value from the arguments that are left; returns what is wrong with it."""
    types = {parameter.name: parameter.type for parameter in kind.parameters()}
    if issubclass(kind, SyncConfig):
        types |= dict.fromkeys(_OF_FILE, "str")
    option, equals, value = text.partition("=")
    name = option[2:].replace("-", "_")
    positive = name.removeprefix("no_")
    if name in _FLAGS or (name not in types and types.get(positive) == "bool"):
        if equals:
            return f"{option}: takes no value. Remedy: leave it out."
        if name in _FLAGS:
            request.flags.add(name)
            return None
        return _put(given, positive, "false", option)
    if name not in types:
        match = _OPTION.match(text)
        if match is not None and match[0] == text:
            _ = left and left.popleft()  # its value, whatever that looks like
        return _unknown_option(match[0] if match else "--", [*types, *_FLAGS])
    if not equals:
        if types[name] == "bool":
            value = left.popleft() if left and left[0].lower() in _BOOLEANS else "true"
        elif not left or left[0].startswith("--"):
            return f"argument {option}: expected one argument. Remedy: write {option} VALUE or {option}=VALUE."
        else:
            value = left.popleft()
    return _put(given, name, value, option)


def _put(given: dict[str, str], name: str, value: str, option: str) -> str | None:
    """Keep the value of an option; returns the problem if it has one already."""
    if name in given:
        return f"{option}: given twice. Remedy: keep one of them."
    given[name] = value
    return None


def _unknown_option(option: str, known: Sequence[str]) -> str:
    """The problem with an option; one that may have a secret appended to its name is not shown."""
    name = option[2:].replace("-", "_")
    near = next(iter(difflib.get_close_matches(name.removeprefix("no_"), known, n=1)), "")
    if name in known:
        return f"{option}: its value is not separated from it. Remedy: write {option} VALUE or {option}=VALUE."
    hint = f"did you mean --{near.replace('_', '-')}" if near else "see --help for all of them"
    shown = f"{option}: unknown option" if len(name) <= len(near) else "unknown option (not shown)"
    return f"{shown}. Remedy: {hint}."


def _command_problems(command: str, kind: type[ParameterModel]) -> list[str]:
    if not command:
        return ["no command is given. Remedy: see --help."]
    if command == SERVICES or (command in COMMANDS and COMMANDS[command].kind is not kind):
        # The options that were read are those of another command.
        return [f"{command}: comes after options. Remedy: write the command first."]
    if command not in COMMANDS:
        near = difflib.get_close_matches(command, COMMANDS, n=1)
        remedy = f"did you mean {near[0]}" if near else f"name one of {', '.join(COMMANDS)}"
        return [f"There is no such command (not shown). Remedy: {remedy}."]
    return []


def _file_option(request: Request, name: str, value: str) -> str | None:
    """Put an option about many indexes into the request; returns what is wrong with it."""
    if name == "file":
        if not value.strip():  # as of a variable that is not set: the run would work on something else
            return "--file: is empty. Remedy: name the file with the indexes, or leave the option out."
        request.file = value
    elif name == "only":
        request.only = [index.strip() for index in value.split(",")]
        if not all(request.only):
            return "--only: has a blank name. Remedy: write a,b, or leave the option out for all indexes."
    elif not value:
        request.parallel = DEFAULT_PARALLEL
    elif not re.fullmatch(r"\d{1,3}", value) or not 1 <= int(value) <= _MOST_PARALLEL:
        return f"--parallel: is not a number from 1 to {_MOST_PARALLEL} (not shown). Remedy: write --parallel 4."
    else:
        request.parallel = int(value)
    return None


def _combination_problems(request: Request) -> list[str]:
    """Options that do not fit together."""
    problems = []
    command, many = COMMANDS[request.command], len(request.only) != 1
    if not request.file and (request.only or request.parallel != DEFAULT_PARALLEL):
        problems.append("--only and --parallel: given without --file. Remedy: name the file with the indexes.")
    for name in ("table", "index"):
        if request.file and many and request.parameters.get(name):
            problems.append(f"--{name}: given for all indexes of a file. Remedy: name one index with --only.")
    is_dry_run = request.parameters.get("dry_run", "").lower() not in _FALSE
    if is_dry_run and "repair" in command.fixed:
        problems.append("--dry-run: a repair writes. Remedy: run validate; it shows what a repair would correct.")
    if is_dry_run and request.command == "replay":
        problems.append("--dry-run: a replay writes. Remedy: run status; it counts the open dead letters.")
    if "repair" in command.fixed and request.parameters.get("repair", "").lower() in _FALSE - {""}:
        problems.append("--no-repair: this command repairs. Remedy: run validate.")
    return problems

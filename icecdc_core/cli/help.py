"""The help texts of the command line."""

from __future__ import annotations

import argparse

from icecdc_core.cli.commands import COMMANDS, SERVICES, Command
from icecdc_core.cli.options import DEFAULT_PARALLEL
from icecdc_core.config import SyncConfig
from icecdc_core.reporting.exit_states import EXIT_STATES

_COMMON = ("table", "opensearch_url")


def overview(program: str) -> str:
    """Return the help of the program: every command with an example, and the options that matter most."""
    lines = [
        f"usage: {program} COMMAND [--name value ...]",
        "",
        "Keep OpenSearch indexes in sync with Apache Iceberg tables.",
        "",
        "commands:",
    ]
    for name, command in COMMANDS.items():
        lines += [f"  {name:<9} {command.help}", f"            {program} {name} {command.example}"]
    lines += [
        f"  {SERVICES:<9} start and stop OpenSearch and Kafka on this machine, for development",
        f"            {program} {SERVICES} up",
        "",
        _options("options", SyncConfig, _COMMON),
        _further(),
        f"{program} COMMAND --help lists all options of a command. --version shows the version.",
    ]
    return "\n".join(lines)


def command_help(program: str, name: str) -> str:
    """Return the help of one command: an example, the parameters that matter, then all others."""
    command = COMMANDS[name]
    others = tuple(each.name for each in command.kind.parameters() if each.name not in command.main)
    states = "\n".join(f"  {state.code:>2}  {state_name}: {state.meaning}" for state_name, state in EXIT_STATES.items())
    return "\n".join(
        [
            f"usage: {program} {name} [--name value ...]",
            "",
            f"{command.help[0].upper()}{command.help[1:]}.",
            "",
            f"example: {program} {name} {command.example}",
            *_file_example(program, name, command),
            "",
            _options("main options", command.kind, command.main),
            _further(command.takes_file),
            _options("all other options", command.kind, others),
            f"exit codes:\n{states}",
        ]
    )


def _file_example(program: str, name: str, command: Command) -> list[str]:
    return [f"         {program} {name} --file indexes.yml --only orders,films"] if command.takes_file else []


def _options(title: str, kind: type, names: tuple[str, ...]) -> str:
    """The parameters of these names as a section of the help."""
    parser = _parser()
    group = parser.add_argument_group(title)
    texts = {parameter.name: parameter for parameter in kind.parameters()}  # type: ignore[attr-defined]
    for name in names:
        found = kind.model_fields[name]  # type: ignore[attr-defined]
        required = " Required." if found.is_required() else ""
        examples = "".join(f" Example: {example}" for example in found.examples or ())
        is_flag = texts[name].type == "bool"
        option = f"--{name.replace('_', '-')}"
        shown = [option, f"--no-{option[2:]}"] if is_flag else [option]
        text = (texts[name].help + required + examples).replace("%", "%%")
        if is_flag:
            group.add_argument(*shown, dest=name, action="store_true", help=text)
        else:
            group.add_argument(*shown, dest=name, metavar="VALUE", help=text)
    return _body(parser)


def _further(takes_file: bool = True) -> str:
    parser = _parser()
    if takes_file:
        group = parser.add_argument_group("many indexes")
        group.add_argument("--file", metavar="FILE", help="Work on all indexes of a file. Example: indexes.yml")
        group.add_argument("--only", metavar="NAMES", help="Work on these indexes of the file. Example: orders,films")
        group.add_argument(
            "--parallel",
            metavar="N",
            help=f"How many indexes of the file to process at a time (1 to 64). Default: {DEFAULT_PARALLEL}.",
        )
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="Print the report as one JSON object on the last line.")
    group.add_argument("--verbose", action="store_true", help="Show Spark's own output, and where an error came from.")
    return _body(parser)


def _parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(add_help=False, usage=argparse.SUPPRESS)


def _body(parser: argparse.ArgumentParser) -> str:
    return parser.format_help().strip("\n") + "\n"

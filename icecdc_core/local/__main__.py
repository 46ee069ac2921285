"""The command line: `python -m icecdc_core.local up | status | down`, with `--kafka` for the broker as well."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from icecdc_core.errors import IcecdcError
from icecdc_core.local.kafka import kafka_status, start_kafka, stop_kafka
from icecdc_core.local.opensearch import start_opensearch, status, stop_opensearch


def main(arguments: Sequence[str] | None = None, program: str = "python -m icecdc_core.local") -> int:
    """Run `up`, `down` or `status` and return the exit code."""
    parser = argparse.ArgumentParser(
        prog=program,
        description=f"OpenSearch and Kafka on loopback. Example: {program} up --kafka",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start the server in the background, or use the running one")
    up.add_argument("--port", type=int, default=0, help="default: 9200 if free, else any free one")
    up.add_argument("--kafka", action="store_true", help="start a Kafka broker too, at port 9092 if that is free")
    down = commands.add_parser("down", help="stop the servers")
    down.add_argument("--remove-data", action="store_true", help="remove their data too")
    commands.add_parser("status", help="show whether OpenSearch runs; exit code 1 if not")
    given = parser.parse_args(arguments)
    try:
        if given.command == "up":
            start_opensearch(port=given.port)
            if given.kafka:
                start_kafka()
        elif given.command == "down":
            stopped = any([stop_opensearch(remove_data=given.remove_data), stop_kafka(remove_data=given.remove_data)])
            sys.stdout.write("stopped\n" if stopped else "nothing to stop\n")
            return 0
    except IcecdcError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    found = {"Kafka": kafka_status(), "OpenSearch": status()}
    for name, state in found.items():
        if state is not None:
            sys.stdout.write(f"{name} {state.version} at {state.url} (process {state.pid}, log {state.log})\n")
    if found["OpenSearch"] is None:
        sys.stdout.write("OpenSearch is not running\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

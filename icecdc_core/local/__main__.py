"""The command line: `python -m icecdc_core.local up | status | down`, with `--kafka` for the broker as well."""

import argparse
import sys
from collections.abc import Sequence

from icecdc_core.errors import IcecdcError
from icecdc_core.local import kafka, opensearch


def main(arguments: Sequence[str] | None = None, program: str = "python -m icecdc_core.local") -> int:
    parser = argparse.ArgumentParser(
        prog=program, description=f"OpenSearch and Kafka on loopback. Example: {program} up --kafka"
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
            sys.stderr.write("starting; the first time, the servers are downloaded\n")
            opensearch.start_opensearch(port=given.port)
            if given.kafka:
                kafka.start_kafka()
        elif given.command == "down":
            stopped = [each.background.stop(remove_data=given.remove_data) for each in (opensearch, kafka)]
            sys.stdout.write("stopped\n" if any(stopped) else "nothing to stop\n")
            return 0
    except IcecdcError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    broker, server = kafka.background.status(), opensearch.background.status()
    for name, state in (("Kafka", broker), ("OpenSearch", server)):
        if state is not None:
            sys.stdout.write(f"{name} {state.version} at {state.url} (process {state.pid}, log {state.log})\n")
    if server is None:
        sys.stdout.write("OpenSearch is not running\n")
    return int(server is None)


if __name__ == "__main__":
    sys.exit(main())

"""Asks TLC whether recorded traces are behaviours of the protocol, see `Trace.tla`."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.model.tlc import default_constants, run_module
from tests.model.translation import NONE, Trace, as_set

_MANY = 1_000_000
_NEXT = re.compile(r'^<<"next", (\d+), (\d+)>>', re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    trace: Trace
    refused: int | None

    def __str__(self) -> str:
        if self.refused is None:
            return f"{self.trace.name}: accepted, {len(self.trace.events)} events"
        return f"{self.trace.name}: refused at event {self.refused + 1}: {self.trace.sources[self.refused]}"


def validate(traces: Sequence[Trace]) -> list[Verdict]:
    output = run_module("Trace", _configuration(traces), is_short=True, TraceData=_data(traces))
    if "No error has been found" not in output:
        raise RuntimeError(f"TLC gave no verdict on the traces:\n{_NEXT.sub('', output).strip()}")
    reached = dict.fromkeys(range(1, len(traces) + 1), 1)
    for trace, event in _NEXT.findall(output):
        reached[int(trace)] = max(reached[int(trace)], int(event))
    return [
        Verdict(trace, None if reached[number] > len(trace.events) else reached[number] - 1)
        for number, trace in enumerate(traces, 1)
    ]


def _configuration(traces: Sequence[Trace]) -> str:
    chosen = {
        **{name: value for name, value in default_constants().items() if name not in ("r1", "r2", "a", "b", "x", "y")},
        **dict.fromkeys(("Commits", "Batches", "Exports", "Rollbacks", "Losses", "Repairs", "Undos"), str(_MANY)),
        "Runs": as_set(range(1, max(trace.runs for trace in traces) + 1)),
        "Ids": as_set(range(1, max(1, max(trace.ids for trace in traces)) + 1)),
        "Values": "{}",
        "Synced": "FALSE",
        # Every operation keeps its place in `late`, so each one that is recorded must have been sent.
        "Collects": "TRUE",
        "Reduced": "FALSE",
    }
    lines = ["SPECIFICATION TraceSpec", "CONSTRAINT Reached", "CONSTANTS"]
    lines += [f"  {name} = {value}" for name, value in chosen.items()]
    lines += [f"  {name} <- Trace{name}" for name in ("Orders", "GroupsOf", "Keeps", "Rewritten")]
    return "\n".join(lines) + "\n"


def _data(traces: Sequence[Trace]) -> str:
    most = max(1, max(trace.ids for trace in traces))
    groupings: list[str] = []
    texts: list[str] = []
    rewrites: list[str] = []
    orders_of: list[str] = []
    for trace in traces:
        orders = {}
        for epoch, groups in trace.groups.items():
            groupings.append(_sequence(as_set(group) for group in groups))
            orders[epoch] = str(len(groupings))
        orders_of.append(as_set(map(int, orders.values())))
        texts.append(_events(trace, most, orders))
        rewrites.append(_sequence(as_set(trace.written.get(epoch, ())) for epoch in range(1, trace.epochs + 1)))
    joined = [f"T{number} == <<{text}>>" for number, text in enumerate(texts, 1)]
    sequences = {
        "Traces": [f"T{number}" for number in range(1, len(texts) + 1)],
        "Groupings": groupings,
        "OrdersOf": orders_of,
        "Rewrites": rewrites,
    }
    lines = [f"{name} == {_sequence(elements)}" for name, elements in sequences.items()]
    return "\n".join(["---- MODULE TraceData ----", "EXTENDS Protocol", *joined, *lines, "====", ""])


def _sequence(elements: Iterable[str]) -> str:
    return f"<<{', '.join(elements)}>>"


def _events(trace: Trace, most: int, orders: dict[int, str]) -> str:
    texts = []
    for event in trace.events:
        fields = dict(event)
        if "rows" in fields:
            rows = [*fields["rows"], *[NONE] * (most - trace.ids)]
            fields["rows"] = _sequence(rows)
        text = "[" + ", ".join(f"{name} |-> {value}" for name, value in fields.items()) + "]"
        texts.append(re.sub(r"@(\d+)@", lambda found: orders[int(found[1])], text))
    return ",\n".join(texts)

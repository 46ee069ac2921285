"""Recorded runs are behaviours of the protocol, and wrong ones are not, see docs/proof.md."""

import json

import pytest

from tests.model.tampering import TAMPERINGS, tampered
from tests.model.tlc import HERE
from tests.model.translation import translate
from tests.model.validation import validate

RECORDED = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(HERE.glob("traces/*.json"))}


@pytest.fixture(scope="module")
def verdicts():
    """What TLC says of all of them, in one start."""
    changed = {change.__name__: tampered(change, RECORDED[of]) for change, (of, _) in TAMPERINGS.items()}
    traces = {**RECORDED, **changed}
    return dict(zip(traces, validate([translate(trace) for trace in traces.values()]), strict=True))


@pytest.mark.parametrize("name", RECORDED)
def it_is_a_behaviour_of_the_protocol(verdicts, name):
    assert verdicts[name].refused is None, str(verdicts[name])


@pytest.mark.parametrize("change", TAMPERINGS, ids=lambda change: change.__name__)
def it_is_refused_where_it_is_wrong(verdicts, change):
    verdict, (_, words) = verdicts[change.__name__], TAMPERINGS[change]
    assert verdict.refused is not None
    assert words in verdict.trace.sources[verdict.refused]

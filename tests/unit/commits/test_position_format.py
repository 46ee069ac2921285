"""What a stored position may look like: read, or refused by name; never a KeyError or a TypeError."""

from dataclasses import replace

import pytest

from icecdc_core.commits.position import FORMAT, Batch, LeaseHolder, Position, parse_position, position_document
from icecdc_core.commits.store import MAPPING, require_mapping
from icecdc_core.errors import PositionError

BATCH = Batch("export", 4, None, 9, "t--000004", "uuid", {"branch": "main"}, "{}", groups_done=2, index_uuid="u")
POSITION = Position("t", "lake.ns.t", "uuid", 1, 4, "t--000003", {"branch": "main"}, "{}", BATCH)
HOLDER = LeaseHolder.this_process("run", 60.0)
STORED = position_document(POSITION, HOLDER)


class DescribeAStoredPosition:
    @pytest.mark.parametrize("position", [POSITION, replace(POSITION, batch=None), Position("t", "a.b.c", "")])
    @pytest.mark.parametrize("owner", [None, HOLDER], ids=["free", "held"])
    def it_is_read_as_it_was_written(self, position, owner):
        found, holder = parse_position(position_document(position, owner))
        assert (found, holder and replace(holder, renewed=HOLDER.renewed)) == (position, owner)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"format": FORMAT + 1}, f"it has format {FORMAT + 1}, and this release reads {FORMAT}"),
            ({"shards": 3}, "shards: Unexpected"),
            ({"batch": {**STORED["batch"], "shard": 3}}, "batch.shard: Unexpected"),
            ({"owner": {**STORED["owner"], "token": 3}}, "token: Unexpected"),
            ({"owner": "me"}, "cannot be read"),
            ({"owner": {**STORED["owner"], "lease_seconds": 1e300}}, "lease_seconds: Input should be less"),
            ({"epoch": "many"}, "epoch: Input should be a valid integer"),
            ({"batch": {"kind": "sync"}}, "batch.epoch: Field required"),
            ({"batch": []}, "batch"),
            ({"selection": None}, "selection"),
        ],
    )
    def it_is_refused_by_name(self, change, message):
        with pytest.raises(PositionError) as caught:
            parse_position({**STORED, **change})
        assert (message in str(caught.value), caught.value.value, "Remedy" in str(caught.value)) == (True, "t", True)


class DescribeAMapping:
    def it_is_accepted_in_the_form_that_the_server_returns(self):
        require_mapping("p", {**MAPPING, "dynamic": "false"})

    @pytest.mark.parametrize(
        "mapping",
        [
            {},
            {**MAPPING, "properties": {**MAPPING["properties"], "type": {"type": "text"}}},
            {**MAPPING, "dynamic": "true"},
            {**MAPPING, "_source": {"enabled": False}},
            {**MAPPING, "_source": {"excludes": ["batch"]}},
        ],
    )
    def it_is_refused_when_it_differs(self, mapping):
        with pytest.raises(PositionError, match="icecdc did not create the positions index 'p'"):
            require_mapping("p", mapping)

"""Two printable texts of 64 bytes that have one xxhash64, as somebody computes them who wants an update unseen."""

_P1, _P2 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F
_MASK = (1 << 64) - 1
_FILLER = b"a text like any other, and as good as it is, with much in it...."


def colliding_texts(seed: int) -> tuple[str, str]:
    """Return two texts of the same hash: whatever another first lane does to an accumulator, a second lane undoes."""
    start = (seed + _P1 + _P2) & _MASK
    first, second = _FILLER[:8], _FILLER[32:40]
    after = _round(start, first)
    inverse = pow(_P2, -1, 1 << 64)
    for number in range(10_000_000):
        other = b"%08d" % number
        undone = (_number(second) + (after - _round(start, other)) * inverse) & _MASK
        lane = undone.to_bytes(8, "little")
        # Without quotes and backslashes, for they are written into SQL.
        if all(0x20 <= byte < 0x7F and byte not in b"'\"\\" for byte in lane):
            twin = other + _FILLER[8:32] + lane + _FILLER[40:]
            return _FILLER.decode(), twin.decode()
    raise AssertionError("no pair was found")


def _round(accumulator: int, lane: bytes) -> int:
    mixed = (accumulator + _number(lane) * _P2) & _MASK
    return ((mixed << 31 | mixed >> 33) * _P1) & _MASK


def _number(lane: bytes) -> int:
    return int.from_bytes(lane, "little")

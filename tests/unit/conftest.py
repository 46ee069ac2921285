"""The simulated OpenSearch behind HTTP, for the rules of positions, of indexes and of the client."""

import pytest

from tests.servers.tiny_opensearch import tiny_opensearch


@pytest.fixture
def server():
    with tiny_opensearch() as started:
        yield started

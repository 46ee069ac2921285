"""Names from outside can be anything: what is accepted stays one name, in SQL, in JSON and in a URL."""

from urllib.parse import unquote

from hypothesis import example, given, settings, strategies as st

from icecdc_core.columns import quoted
from icecdc_core.config import SyncConfig
from icecdc_core.config.values import split_table_name
from icecdc_core.errors import ConfigError
from icecdc_core.opensearch.bulk import bulk_path

NAMES = st.text(min_size=1, max_size=40) | st.text("abc_-./\\%?#&=;:'\"`*,<>|+ \n\t${}()[]", min_size=1, max_size=20)


def accepted(**parameters):
    try:
        return SyncConfig(**{"table": "lake.ns.t", **parameters})
    except ConfigError:
        return None


@settings(max_examples=100, deadline=None)
@given(NAMES)
@example("a%2f_all")
@example("a/_all")
@example("*")
def it_lets_an_index_name_mean_one_index_and_no_other_path(name):
    config = accepted(index=name)
    if config is None:
        return
    segments = bulk_path(f"{config.index}--000001--write").split("/")
    whole = unquote(segments[1]) == f"{config.index}--000001--write"
    assert (len(segments), segments[2], whole, set("*,?#") & set(segments[1])) == (3, "_bulk", True, set())


class DescribeTableNames:
    @settings(max_examples=100, deadline=None)
    @given(st.lists(NAMES, min_size=1, max_size=4).map(".".join))
    @example("lake.ns.`a``b`")
    @example("lake.ns.t; DROP TABLE x")
    def it_is_the_same_parts_once_quoted(self, name):
        config = accepted(table=name, index="t")
        if config is None:
            return
        assert split_table_name(config.quoted_table) == config.table_parts == split_table_name(name.strip())

    @settings(max_examples=100, deadline=None)
    @given(NAMES)
    def it_quotes_a_name_so_that_it_cannot_end_early(self, name):
        inside = quoted(name)[1:-1]
        assert (quoted(name)[0], quoted(name)[-1], inside.replace("``", "").count("`")) == ("`", "`", 0)

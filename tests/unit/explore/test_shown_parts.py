"""What the parts show when there is something to show, and when there is not."""

from types import SimpleNamespace

from icecdc_core.errors import DuplicateIdentifierError
from icecdc_core.explore import report
from icecdc_core.explore.config import ExploreConfig
from icecdc_core.explore.differences import Differences
from icecdc_core.explore.documents import DocumentView, QueryResult
from icecdc_core.explore.view import TimeLine


class DescribeTheReport:
    def it_has_no_value_of_a_row_when_the_dry_run_fails(self, monkeypatch):
        def fails(*_):
            raise DuplicateIdentifierError("2 rows share jane", remedy="remove one")

        monkeypatch.setattr(report, "sync_changes", fails)
        config = ExploreConfig(table="lake.ns.t", opensearch_url="http://search:9200")
        source = SimpleNamespace(head=12, nested={})
        view = SimpleNamespace(spark=None, config=config, source=source, position=None, position_snapshot_id=None)
        found = report.dry_run_next_sync(view)
        parts = TimeLine((), 0), found, Differences(), DocumentView(), QueryResult({})
        next_sync = report.explore_report(view, *parts)["next_sync"]
        assert ("jane" in str(found), next_sync["state"], "jane" in str(next_sync)) == (True, "data", False)

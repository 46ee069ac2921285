"""Frames in a notebook: whole texts, nothing for what is not there, and a sentence instead of an empty table."""

from icecdc_core.reporting.tables import NotebookFrame

ROWS = {"id": [8924558786060583479, 7], "text": ["<delete>" + "x" * 200, None], "seconds": [float("nan"), 1.5]}


class DescribeNotebookFrame:
    def it_shows_every_value_and_escapes_it(self):
        html = NotebookFrame(ROWS)._repr_html_()
        expected = ("8924558786060583479", "&lt;delete&gt;" + "x" * 200, ">1.5<")
        assert ([each for each in expected if each not in html], "None" in html or "nan" in html.lower()) == ([], False)

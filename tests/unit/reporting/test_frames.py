"""Frames in a notebook: whole texts, nothing for what is not there, and a sentence instead of an empty table."""

from __future__ import annotations

from icecdc_core.reporting.tables import NotebookFrame

ROWS = {"id": [8924558786060583479, 7], "text": ["<delete>" + "x" * 200, None], "seconds": [float("nan"), 1.5]}


class DescribeNotebookFrame:
    def it_shows_every_value_and_escapes_it(self):
        html = NotebookFrame(ROWS)._repr_html_()
        expected = ("8924558786060583479", "&lt;delete&gt;" + "x" * 200, ">1.5<")
        assert ([each for each in expected if each not in html], "None" in html or "nan" in html.lower()) == ([], False)

    def it_may_have_two_columns_of_one_name(self):
        assert ">b<" in NotebookFrame([["a", None, "b"]], columns=["x", "y", "x"])._repr_html_()

    def it_is_a_sentence_if_it_is_empty(self):
        assert NotebookFrame({"id": []})._repr_html_() == "<p>There is nothing to show.</p>"

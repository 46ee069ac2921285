"""The index file: defaults and indexes, every problem with its place, no text that silently changes, no secret."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.config.index_file import merge
from icecdc_core.errors import ConfigError

FILE = """
defaults:
  opensearch_url: https://search:9200
  opensearch_username: icecdc
  opensearch_password: secret:search/password
  catalog_properties: {type: rest, uri: "http://127.0.0.1:8181"}
indexes:
  films:
    table: lake.shop.film
    identifier_columns: [film_id]
"""
TEXT = {"type": "text", "analyzer": "english"}
ONE = "indexes:\n  films:\n    table: lake.shop.film\n"


@pytest.fixture
def write(tmp_path: Path):
    def _write(text: str) -> Path:
        path = tmp_path / "indexes.yml"
        path.write_text(dedent(text), encoding="utf-8")
        return path

    return _write


@pytest.fixture
def problems(write):
    """The problems of a file."""

    def _problems(text: str, only: tuple[str, ...] = (), **overrides: object) -> list[str]:
        with pytest.raises(ConfigError) as raised:
            SyncConfig.load_all(write(text), only, **overrides)
        assert all("Remedy: " in problem for problem in raised.value.problems)
        return raised.value.problems

    return _problems


class DescribeLoad:
    def it_reads_every_kind_of_parameter(self, write):
        actual = SyncConfig.load(
            write("""
            defaults: {catalog_properties: {type: rest, uri: "http://c:8181"}, opensearch_url: "https://s:9200"}
            indexes:
              films:
                table: lake.shop.film
                identifier_columns: [film_id]
                select: ["* EXCEPT (email)", "sha2(email, 256) AS owner"]
                mapping: {title: {type: text, analyzer: english, index: true}, place: {type: geo_point}}
                settings: {refresh_interval: 5s, max_result_window: 20000}
                target_lag: 10s
                dry_run: yes
                bulk_bytes: 2048
                pipeline_fields: embedding
            """)
        )
        assert actual == SyncConfig(
            table="lake.shop.film",
            index="films",
            opensearch_url="https://s:9200",
            catalog_properties={"type": "rest", "uri": "http://c:8181"},
            identifier_columns=["film_id"],
            select=["* EXCEPT (email)", "sha2(email, 256) AS owner"],
            mapping={"title": {"type": "text", "analyzer": "english", "index": True}, "place": {"type": "geo_point"}},
            settings={"refresh_interval": "5s", "max_result_window": 20000},
            target_lag=10,
            dry_run=True,
            bulk_bytes=2048,
            pipeline_fields=["embedding"],
        )

    def it_takes_the_name_in_the_file_as_the_index(self, write):
        assert SyncConfig.load(write(ONE)).index == "films"

    def it_lets_an_entry_name_another_index(self, write):
        path = write(f"{ONE}    index: films-v2\n")
        assert SyncConfig.load(path, "films").index == "films-v2"

    @pytest.mark.parametrize("empty", ['""', "null"])
    def it_takes_an_empty_index_as_not_given(self, write, empty):
        assert SyncConfig.load(write(f"{ONE}    index: {empty}\n")).index == "films"

    def it_needs_a_name_when_there_are_several(self, write):
        path = write(f"{ONE}  actors:\n    table: lake.shop.actor\n")
        with pytest.raises(ConfigError, match=r"has several indexes.*name one of films, actors"):
            SyncConfig.load(path)
        assert SyncConfig.load(path, "actors").table == "lake.shop.actor"

    def it_names_the_index_that_was_probably_meant(self, write):
        with pytest.raises(ConfigError, match=r"no such index \[index='film'\].*did you mean films; name one of films"):
            SyncConfig.load(write(ONE), "film")

    def it_does_not_need_what_another_index_needs(self, write):
        path = write(f"{ONE}  actors:\n    table: ${{env:ICECDC_TEST_UNSET}}\n    zzz: 1\n")
        assert SyncConfig.load(path, "films").table == "lake.shop.film"


class DescribeLoadAll:
    def it_keeps_the_order_of_the_file(self, write):
        path = write("indexes: {b: {table: lake.ns.b}, a: {table: lake.ns.a}, c: {table: lake.ns.c}}")
        assert list(SyncConfig.load_all(path)) == ["b", "a", "c"]
        assert list(SyncConfig.load_all(path, ["c", "b"])) == ["b", "c"]

    def it_refuses_an_unknown_name(self, write):
        with pytest.raises(ConfigError, match=r"index='film'\].*did you mean films"):
            SyncConfig.load_all(write(ONE), ["films", "film"])


class DescribeDefaults:
    def it_merges_mappings_at_every_level_and_replaces_other_values(self, write):
        actual = SyncConfig.load(
            write("""
            defaults:
              catalog_properties: {type: rest, uri: "http://one"}
              settings: '{"analysis": {"analyzer": {"a": {"type": "simple"}}}, "refresh_interval": "30s"}'
              spark_conf: {spark.x: "1"}
              row_filter: a = 1
              pipeline_fields: [a, b]
            indexes:
              films:
                table: lake.shop.film
                catalog_properties: {uri: "http://two"}
                settings: {analysis: {analyzer: {b: {type: stop}}}, refresh_interval: 5s}
                row_filter: b = 2
                pipeline_fields: [c]
            """)
        )
        analyzers = {"a": {"type": "simple"}, "b": {"type": "stop"}}
        assert dict(actual.catalog_properties) == {"type": "rest", "uri": "http://two"}
        assert actual.settings == {"analysis": {"analyzer": analyzers}, "refresh_interval": "5s"}
        assert (dict(actual.spark_conf), actual.row_filter) == ({"spark.x": "1"}, "b = 2")
        assert actual.pipeline_fields == ["c"]

    @pytest.mark.parametrize("empty", ['""', "null", "~", ""])
    def it_lets_an_index_go_back_to_the_default_of_the_program(self, write, empty):
        path = write(f"defaults: {{branch: dev}}\n{ONE}    branch: {empty}\n")
        assert SyncConfig.load(path).branch == "main"

    @pytest.mark.parametrize("name", ["table", "index", "identifier_columns", "columns", "alias", "select"])
    def it_refuses_what_describes_one_index(self, problems, name):
        assert problems(f"defaults: {{{name}: a.b.c}}\n{ONE}") == [
            f"defaults.{name}: describes one index. Remedy: move it to the index."
        ]

    @pytest.mark.parametrize(
        ("entry", "expected"),
        [
            ({"title": {"type": "keyword"}}, {"title": {"type": "keyword"}}),
            ({"title": {"type": "text", "boost": 2}}, {"title": {**TEXT, "boost": 2}}),
            ({"title": {"index": False}}, {"title": {**TEXT, "index": False}}),
            ({"type": {"type": "keyword"}}, {"title": TEXT, "type": {"type": "keyword"}}),
            ({"title": {"fields": {"a": {"type": "long"}}}}, {"title": {**TEXT, "fields": {"a": {"type": "long"}}}}),
        ],
    )
    def it_merges_a_field_of_the_same_type_and_replaces_one_of_another(self, entry, expected):
        assert merge({"mapping": {"title": TEXT}}, {"mapping": entry}) == {"mapping": expected}

    @pytest.mark.parametrize(
        ("defaults", "entry"),
        [
            ("settings: {index: {refresh_interval: 30s}}", "settings: {refresh_interval: 5s}"),
            ("number_of_shards: 2", "settings: {index.number_of_shards: 3}"),
        ],
    )
    def it_refuses_a_setting_that_both_have_in_other_spellings(self, problems, defaults, entry):
        (problem,) = problems(f"defaults: {{{defaults}}}\n{ONE}    {entry}\n")
        assert ("settings: has" in problem, "twice" in problem) == (True, True)

    def it_reports_a_wrong_default_once(self, problems):
        found = problems("defaults: {bulk_bytes: many}\nindexes: {a: {table: l.n.a}, b: {table: l.n.b}}")
        assert [problem.split(": ")[0] for problem in found] == ["defaults.bulk_bytes"]


class DescribeOverrides:
    def it_lets_them_win_over_the_file(self, write):
        path = write("defaults: {branch: dev, settings: {a: 1}}\nindexes: {films: {table: lake.shop.film}}")
        actual = SyncConfig.load(path, table="lake.dev.film", branch="x", settings='{"b": 2}')
        assert (actual.table, actual.branch, actual.settings) == ("lake.dev.film", "x", {"b": 2})

    def it_does_not_move_other_indexes_with_them(self, write):
        path = write("""
            indexes:
              test: {table: lake.ns.a, index: a, opensearch_url: "https://test:9200"}
              live: {table: lake.ns.a, index: a, opensearch_url: "https://live:9200"}
            """)
        actual = SyncConfig.load(path, "test", opensearch_url="http://127.0.0.1:9200")
        assert (actual.index, actual.opensearch_url) == ("a", "http://127.0.0.1:9200")
        with pytest.raises(ConfigError, match=r"indexes\.live\.index: 'a' is also the index of indexes\.test"):
            SyncConfig.load(path, "test", opensearch_url="https://live:9200")

    @pytest.mark.parametrize("empty", ["", None])
    def it_reads_an_empty_one_as_not_given(self, write, empty):
        assert SyncConfig.load(write(FILE), opensearch_url=empty).opensearch_url == "https://search:9200"

    def it_names_them_without_a_place_in_the_file(self, problems):
        found = problems(FILE, max_polls="x", tabel="y")
        assert [problem.split(": ")[0] for problem in found] == ["max_polls", "tabel"]


class DescribeProblemsOfAFile:
    def it_reports_those_of_all_indexes_with_their_place(self, problems):
        found = problems("""
            defauls: {}
            defaults: {opensearch_ulr: "http://h", row_hash: md5}
            indexes:
              films: {tabel: lake.shop.film, select: [1, ""], max_polls: -1}
              actors: {table: actor}
              stores: [lake.shop.store]
              empty:
            """)
        assert [problem.split(": ")[0] for problem in found] == [
            "defauls",
            "defaults.opensearch_ulr",
            "indexes.films.tabel",
            "indexes.films.table",
            "indexes.films.select",
            "defaults.row_hash",
            "indexes.films.max_polls",
            "indexes.actors.table",
            "indexes.stores",
            "indexes.stores.table",
            "indexes.empty.table",
        ]
        assert [problem.split("did you mean ")[1] for problem in found if "did you mean" in problem] == [
            "defaults.",
            "opensearch_url.",
            "table.",
        ]

    def it_reports_only_those_of_the_chosen_indexes(self, problems):
        found = problems("indexes: {a: {table: a}, b: {table: b}}", ("b",))
        assert [problem.split(": ")[0] for problem in found] == ["indexes.b.table"]

    def it_shows_no_value_of_an_unknown_key(self, problems):
        assert "hunter2" not in "".join(
            problems(f"defaults: {{opensearch_pasword: hunter2}}\n{ONE}    tokn: hunter2\n")
        )

    def it_refuses_a_parameter_of_python_s_own(self, problems):
        assert problems(f"{ONE}    self: 1\n")[0].startswith("indexes.films.self: unknown parameter")

    @pytest.mark.parametrize(
        ("entry", "words"),
        [
            ("index: Films", "indexes.films.index: is not a name that OpenSearch accepts"),
            ("routing: a", "indexes.films.routing: string should have at most 0 characters"),
            ("columns: a\n    select: [b]", "indexes.films.select: given together with columns"),
            ("settings: '{\"a\"'", "indexes.films.settings: is not valid JSON"),
            ("mapping: [a]", "indexes.films.mapping: is not an object"),
            ("columns: '[\"a\"'", "indexes.films.columns: is not a JSON array"),
            ('settings: \'{"a": 1, "a": 2}\'', "indexes.films.settings: is not valid JSON: a key occurs twice"),
            ("settings: '{\"a\": NaN}'", "indexes.films.settings: has a value that JSON cannot represent"),
            (f"settings: '{{\"a\": {'1' * 5000}}}'", "indexes.films.settings: is not valid JSON: Exceeds the limit"),
            (f"columns: '{'[' * 100_000}'", "indexes.films.columns: is not a JSON array: maximum recursion depth"),
            ('spark_conf: \'{"a": 1, "a": 2}\'', "indexes.films.spark_conf: is not valid JSON: a key occurs twice"),
            ("catalog_properties: {type: {a: b}}", "indexes.films.catalog_properties: has no string under 'type'"),
            ("opensearch_password: hunter2", "indexes.films.opensearch_password: must be a reference"),
        ],
    )
    def it_places_the_problems_of_values(self, problems, entry, words):
        credentials = ["opensearch_username: u"] * (entry.startswith("opensearch_password"))
        found = problems("\n    ".join([f"{ONE}    {entry}", *credentials]))
        assert [problem.startswith(words) for problem in found] == [True]
        assert "hunter2" not in found[0]

    @pytest.mark.parametrize(
        ("second", "is_wrong"),
        [
            ("{table: lake.ns.b, index: a}", True),
            ("{table: lake.ns.a, index: a, opensearch_url: 'HTTP://127.0.0.1:9200/'}", True),
            ("{table: lake.ns.b, index: a, opensearch_url: 'https://other:9200'}", False),
            ("{table: lake.ns.b, index: a, positions_index: other}", True),
            ("{table: lake.ns.a}", False),
        ],
    )
    def it_refuses_two_entries_for_one_index(self, write, problems, second, is_wrong):
        text = f"indexes:\n  a: {{table: lake.ns.a}}\n  b: {second}\n"
        if not is_wrong:
            assert list(SyncConfig.load_all(write(text))) == ["a", "b"]
            return
        for only in ((), ("a",), ("b",)):
            (problem,) = problems(text, only)
            assert problem.startswith("indexes.b.index: 'a' is also the index of indexes.a.")

    @pytest.mark.parametrize(
        ("defaults", "second", "parameters"),
        [
            ("{}", "table: lake.ns.a, index: a", ["dead_letter_table"]),
            (
                "{}",
                "table: lake.ns.a, index: a, dead_letter_table: lake.ns.`icecdc_dead_letters`",
                ["dead_letter_table"],
            ),
            ("{}", "table: lake.ns.a, index: a, dead_letter_table: lake.ns.other", []),
            ("{dead_letter_table: lake.ns.letters}", "table: lake.ns.b, index: a", []),
            ("{metrics_folder: /m}", "table: lake.ns.b, index: a", ["metrics_folder"]),
            ("{metrics_folder: /m}", "table: lake.ns.b, index: a, metrics_folder: /n", []),
            ("{metrics_url: 'http://m:9091'}", "table: lake.ns.b, index: a", ["metrics_url"]),
            ("{metrics_folder: /m, metrics_url: 'http://m:9091'}", "table: lake.ns.a, index: b", []),
        ],
    )
    def it_refuses_to_mix_two_indexes_of_one_name_on_two_clusters(self, write, problems, defaults, second, parameters):
        text = f"""
        defaults: {defaults}
        indexes:
          a: {{table: lake.ns.a}}
          b: {{opensearch_url: 'https://other:9200', {second}}}
        """
        found = problems(text) if parameters else SyncConfig.load_all(write(text)) and []
        assert [problem.partition(": ")[0] for problem in found] == [f"indexes.b.{name}" for name in parameters]
        # Only what works on both mixes anything.
        assert [SyncConfig.load(write(text), name).opensearch_url[:5] for name in "ab"] == ["http:", "https"]


class DescribeYaml:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("indexes:\n\tfilms: {}\n", "not YAML.*line 2, column 1"),
            ("indexes: {a: *b}\n", "not YAML.*line 1, column 14"),
            ("indexes: {}\n---\nindexes: {}\n", "not YAML.*line 2"),
            ("indexes:\n  a: \x07\n", "not YAML"),
            ("indexes: " + "[" * 5000, "not YAML"),
            (f"{ONE}    start_from: 2026-13-45\n", "not YAML: a value cannot be read"),
            (f"{ONE}    table: a.b.c\n", r"has the key 'table' twice \(line 4, column 5\)"),
            ("indexes: {a: {}}\nindexes: {b: {}}\n", "has the key 'indexes' twice.*line 2, column 1"),
            (f"{ONE}    mapping: {{a: {{b: 1, b: 2}}}}\n", "has the key 'b' twice.*line 4"),
            ("indexes: {[a]: {}}\n", "has a key that is not a string; write it in quotes.*line 1"),
            ("indexes: {2026: {}}\n", "has a key that is not a string.*line 1"),
            (f"{ONE}    branch: !!python/object/apply:os.system x\n", "not YAML.*line 4"),
            ("indexes: &a {b: *a}\n", "repeats values by aliases"),
            ("indexes: &a {<<: *a}\n", "repeats values by aliases"),
            ("", "is empty"),
            ("# nothing\n", "is empty"),
            ("- films\n", "is a list, not a mapping"),
            ("films\n", "is a str, not a mapping"),
            ("defaults: {}\n", "indexes: missing"),
            ("indexes: [films]\n", "indexes: missing"),
            ("indexes: {'': {table: a.b.c}}\n", "indexes: has a blank name"),
        ],
    )
    def it_refuses_what_it_cannot_read_and_says_where(self, write, text, words):
        with pytest.raises(ConfigError, match=f"(?s){words}.*Remedy: "):
            SyncConfig.load_all(write(text))

    def it_does_not_expand_aliases_without_end(self, write):
        lines = ["a: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
        with pytest.raises(ConfigError, match="repeats values by aliases too often"):
            SyncConfig.load_all(write("\n".join(lines)))

    def it_shows_nothing_of_the_file_in_an_error(self, write):
        with pytest.raises(ConfigError) as raised:
            SyncConfig.load(write("defaults: {opensearch_password: hunter2, a: b: c}\n"))
        assert "hunter2" not in str(raised.value)

    @pytest.mark.parametrize("name", ["missing.yml", ".", "a\0.yml"])
    def it_refuses_a_file_that_cannot_be_read(self, tmp_path, name):
        with pytest.raises(ConfigError, match=r"cannot be read.*\[index_file="):
            SyncConfig.load(tmp_path / name)

    def it_refuses_a_file_that_is_not_text(self, tmp_path):
        (tmp_path / "a.yml").write_bytes(b"indexes: \xff\xfe")
        with pytest.raises(ConfigError, match="not valid UTF-8"):
            SyncConfig.load(tmp_path / "a.yml")

    def it_reads_a_file_with_a_byte_order_mark(self, tmp_path):
        (tmp_path / "a.yml").write_text(ONE, encoding="utf-8-sig")
        assert SyncConfig.load(tmp_path / "a.yml").index == "films"

    def it_reads_anchors_and_merge_keys(self, write):
        actual = SyncConfig.load_all(
            write("""
            indexes:
              a: &a {table: lake.ns.a, branch: dev, settings: &s {x: 1, y: 1}}
              b: {<<: *a, table: lake.ns.b}
              c: {<<: [{table: lake.ns.c}, *a], settings: {<<: *s, y: 2}}
            """)
        )
        assert [(c.table, c.branch, c.settings) for c in actual.values()] == [
            ("lake.ns.a", "dev", {"x": 1, "y": 1}),
            ("lake.ns.b", "dev", {"x": 1, "y": 1}),
            ("lake.ns.c", "dev", {"x": 1, "y": 2}),
        ]

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("start_from: 2026-01-31T12:00:00Z", "2026-01-31T12:00:00+00:00"),
            ("start_from: 2026-01-31", "2026-01-31"),
            ("start_from: 4875243452", "4875243452"),
            ('branch: "no"', "no"),
            ("branch: 010", None),
            ("branch: 1.10", None),
            ("branch: no", None),
            ("branch: 2026-01-31", None),
            ("columns: [no]", None),
        ],
    )
    def it_refuses_what_yaml_makes_of_a_text_instead_of_changing_it(self, write, problems, line, expected):
        name = line.partition(":")[0]
        if expected is None:
            (problem,) = problems(f"{ONE}    {line}\n")
            assert problem.startswith(f"indexes.films.{name}: ")
        else:
            assert getattr(SyncConfig.load(write(f"{ONE}    {line}\n")), name) == expected

    @pytest.mark.parametrize("name", ["mapping", "settings"])
    @pytest.mark.parametrize(
        ("text", "expected"), [("true", True), ("~", None), ("5", 5), ('"5"', "5"), ("[1, {a: .5}]", [1, {"a": 0.5}])]
    )
    def it_reads_json_values_where_opensearch_gets_json(self, write, name, text, expected):
        actual = getattr(SyncConfig.load(write(f"{ONE}    {name}: {{a: {text}}}\n")), name)["a"]
        assert (actual, type(actual)) == (expected, type(expected))


class DescribeSubstitution:
    @pytest.fixture(autouse=True)
    def _variables(self, monkeypatch):
        monkeypatch.setenv("ICECDC_TEST_A", "a")
        monkeypatch.setenv("ICECDC_TEST_EMPTY", "")
        monkeypatch.setenv("ICECDC_TEST_EVIL", 'x", "y": "z\n  evil: {table: a.b.c} # ${env:ICECDC_TEST_A}')
        monkeypatch.setenv("ICECDC_TEST_SECRET", "hunter2")
        monkeypatch.delenv("ICECDC_TEST_UNSET", raising=False)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("${env:ICECDC_TEST_A}", "a"),
            ("x-${env:ICECDC_TEST_A}-${env:ICECDC_TEST_A}", "x-a-a"),
            ("${env:ICECDC_TEST_UNSET:-d-e:f}", "d-e:f"),
            ("${env:ICECDC_TEST_EMPTY:-d}", "d"),
            ("${env:ICECDC_TEST_UNSET:-}x", "x"),
            ("${env:ICECDC_TEST_A:-d}", "a"),
            ("a${env:ICECDC_TEST_EMPTY}", "a"),
            ("$${env:ICECDC_TEST_A}", "${env:ICECDC_TEST_A}"),
            ("$$${env:ICECDC_TEST_A}", "$${env:ICECDC_TEST_A}"),
            ("env:ICECDC_TEST_A", "env:ICECDC_TEST_A"),
            ("$5 {a} $", "$5 {a} $"),
        ],
    )
    def it_replaces_references_in_texts(self, write, text, expected):
        path = write(
            f"""
            indexes:
              films:
                table: lake.shop.film
                row_filter: "{text}"
                select: ["{text}"]
                mapping: {{a: {{b: ["{text}"]}}}}
                spark_conf: {{a: "{text}"}}
            """
        )
        actual = SyncConfig.load(path)
        assert [actual.row_filter, *actual.select, actual.mapping["a"]["b"][0], actual.spark_conf["a"]] == [
            expected
        ] * 4

    def it_fits_every_type(self, write, monkeypatch):
        monkeypatch.setenv("ICECDC_TEST_A", "3")
        path = write(f"{ONE}    max_polls: ${{env:ICECDC_TEST_A}}\n    dry_run: ${{env:ICECDC_TEST_UNSET:-true}}\n")
        assert (SyncConfig.load(path).max_polls, SyncConfig.load(path).dry_run) == (3, True)

    def it_puts_in_texts_that_stay_texts(self, write):
        path = write(
            f"""{ONE}    row_filter: ${{env:ICECDC_TEST_EVIL}}
    spark_conf: '{{"a": "${{env:ICECDC_TEST_EVIL}}"}}'
    columns: '["${{env:ICECDC_TEST_EVIL}}"]'
"""
        )
        evil = 'x", "y": "z\n  evil: {table: a.b.c} # ${env:ICECDC_TEST_A}'
        (actual,) = SyncConfig.load_all(path).values()
        assert (actual.row_filter, dict(actual.spark_conf), actual.columns) == (evil, {"a": evil}, [evil])

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("${env:ICECDC_TEST_UNSET}", "the environment variable ICECDC_TEST_UNSET is not set"),
            ("${ICECDC_TEST_A}", "has ${ that begins no reference"),
            ("${env:1A}", "has ${ that begins no reference"),
            ("${secret:a/b}", "has ${ that begins no reference"),
            ("${env:ICECDC_TEST_A", "has ${ that begins no reference"),
        ],
    )
    def it_names_place_and_variable_of_what_it_cannot_replace(self, problems, text, words):
        file = f"""
            defaults: {{metrics_folder: "{text}"}}
            indexes: {{a: {{table: "{text}"}}, b: {{table: l.n.t, mapping: {{t: {{type: "{text}"}}}}}}}}
            """
        assert [problem.split(". Remedy")[0] for problem in problems(file)] == [
            f"defaults.metrics_folder: {words}",
            f"indexes.a.table: {words}",
            f"indexes.b.mapping.t.type: {words}",
        ]

    @pytest.mark.parametrize(
        ("place", "line"),
        [
            ("opensearch_password", 'opensearch_password: "${env:ICECDC_TEST_SECRET}"'),
            ("opensearch_password", 'opensearch_password: "secret:${env:ICECDC_TEST_SECRET}/key"'),
            ("opensearch_password", 'opensearch_password: "${env:ICECDC_TEST_UNSET:-hunter2}"'),
            ("catalog_properties.token", 'catalog_properties: {token: "${env:ICECDC_TEST_SECRET}"}'),
            (
                "catalog_properties.s3.secret-access-key",
                'catalog_properties: {s3.secret-access-key: "${env:ICECDC_TEST_SECRET}"}',
            ),
            ("catalog_properties.uri", 'catalog_properties: {uri: "jdbc:pg://u:${env:ICECDC_TEST_SECRET}@h/db"}'),
            ("spark_conf.a", """spark_conf: '{"a": "jdbc:pg://h/db?password=${env:ICECDC_TEST_SECRET}"}'"""),
        ],
    )
    @pytest.mark.parametrize("section", ["defaults", "indexes.films"])
    def it_writes_no_secret_into_a_configuration(self, problems, section, place, line):
        username = "opensearch_username: u, " * line.startswith("opensearch")
        entries = {"defaults": "", "indexes.films": "table: lake.shop.film, "}
        entries = {
            name: f"{{{text}{username}{line}}}" if name == section else f"{{{text}}}" for name, text in entries.items()
        }
        (problem,) = problems(f"defaults: {entries['defaults']}\nindexes: {{films: {entries['indexes.films']}}}\n")
        assert problem.startswith(f"{section}.{place}: may hold a secret")
        assert "write env:ICECDC_TEST_" in problem
        assert "hunter2" not in problem

    @pytest.mark.parametrize(
        "line",
        [
            """select: ["sha2(concat('${env:ICECDC_TEST_SECRET}', email), 256) AS owner"]""",
            """row_filter: "email <> '${env:ICECDC_TEST_SECRET}'\"""",
            """select: ["concat('${env:ICECDC_TEST_TOKEN:-hunter2}', email) AS owner"]""",
        ],
    )
    def it_writes_no_secret_into_an_expression(self, problems, line):
        (problem,) = problems(f"{ONE}    {line}\n")
        assert problem.startswith(f"indexes.films.{line.partition(':')[0]}: may hold a secret")
        assert "Remedy: leave ICECDC_TEST_" in problem
        assert "hunter2" not in problem

    def it_writes_other_variables_into_an_expression(self, write):
        path = write(f"""{ONE}    row_filter: "name = '${{env:ICECDC_TEST_A}}'"\n""")
        assert SyncConfig.load(path).row_filter == "name = 'a'"

    def it_does_not_take_a_name_of_the_file_for_that_of_a_secret(self, write):
        path = write('indexes: {tokens: {table: l.n.t, catalog_properties: {uri: "http://${env:ICECDC_TEST_A}"}}}')
        assert SyncConfig.load(path).catalog_properties["uri"] == "http://a"

    def it_leaves_references_to_secrets_for_later(self, write):
        path = write(f"{ONE}    opensearch_username: u\n    opensearch_password: env:ICECDC_TEST_UNSET\n")
        assert SyncConfig.load(path).opensearch_password == "env:ICECDC_TEST_UNSET"

"""The index file: every problem with its place, no text that silently changes, no secret."""

from textwrap import dedent

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.errors import ConfigError
from icecdc_core.ingest import IngestConfig

ONE = "indexes:\n  films:\n    table: lake.shop.film\n"


@pytest.fixture
def write(tmp_path):
    def _write(text):
        path = tmp_path / "indexes.yml"
        path.write_text(dedent(text), encoding="utf-8")
        return path

    return _write


@pytest.fixture
def problems(write):
    def _problems(text, only=(), **overrides):
        with pytest.raises(ConfigError) as raised:
            SyncConfig.load_all(write(text), only, **overrides)
        assert all("Remedy: " in problem for problem in raised.value.problems)
        return raised.value.problems

    return _problems


class DescribeLoad:
    def it_merges_mappings_with_the_defaults_at_every_level_and_replaces_other_values(self, write):
        actual = SyncConfig.load(
            write("""
            defaults:
              settings: '{"analysis": {"analyzer": {"a": {"type": "simple"}}}, "refresh_interval": "30s"}'
              spark_conf: {spark.x: "1"}
              pipeline_fields: [a, b]
              dry_run: yes
            indexes:
              films:
                table: lake.shop.film
                select: ["* EXCEPT (email)", "sha2(email, 256) AS owner"]
                settings: {analysis: {analyzer: {b: {type: stop}}}, refresh_interval: 5s}
                pipeline_fields: c
                target_lag: 10s
            """)
        )
        analyzers = {"a": {"type": "simple"}, "b": {"type": "stop"}}
        assert actual == SyncConfig(
            table="lake.shop.film",
            index="films",
            select=["* EXCEPT (email)", "sha2(email, 256) AS owner"],
            settings={"analysis": {"analyzer": analyzers}, "refresh_interval": "5s"},
            spark_conf={"spark.x": "1"},
            pipeline_fields=["c"],
            dry_run=True,
            target_lag=10,
        )

    def it_needs_a_name_when_there_are_several_and_not_what_another_index_needs(self, write):
        path = write(f"{ONE}  actors:\n    table: ${{env:ICECDC_TEST_UNSET}}\n    zzz: 1\n")
        with pytest.raises(ConfigError, match=r"has several indexes.*name one of films, actors"):
            SyncConfig.load(path)
        with pytest.raises(ConfigError, match=r"no such index \[index='film'\].*name one of films, actors"):
            SyncConfig.load_all(path, ["films", "film"])
        assert SyncConfig.load(path, "films").table == "lake.shop.film"

    def it_lets_an_index_go_back_to_the_default_of_the_program(self, write):
        for empty in ('""', "null", ""):
            assert SyncConfig.load(write(f"defaults: {{branch: dev}}\n{ONE}    branch: {empty}\n")).branch == "main"


class DescribeOverrides:
    def it_lets_them_win_over_the_file_and_names_them_without_a_place_in_it(self, write, problems):
        path = write("defaults: {branch: dev, settings: {a: 1}}\nindexes: {films: {table: lake.shop.film}}")
        actual = SyncConfig.load(path, table="lake.dev.film", branch="", settings='{"b": 2}', max_polls=None)
        assert (actual.table, actual.branch, actual.settings) == ("lake.dev.film", "dev", {"b": 2})
        found = problems(ONE, max_polls="x", tabel="y")
        assert [problem.split(": ")[0] for problem in found] == ["max_polls", "tabel"]

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


class DescribeProblemsOfAFile:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("defauls: {}\nindexes: {films: {tabel: lake.shop.film}, stores: [a]}", ["defauls", "indexes.stores"]),
            (
                """
                defaults: {row_hash: md5, opensearch_ulr: "http://h"}
                indexes:
                  films: {tabel: lake.shop.film, select: [1, ""], max_polls: -1, settings: '{"a"'}
                  actors: {table: actor}
                  empty:
                """,
                [
                    *("indexes.films.table", "indexes.films.select", "indexes.films.settings", "defaults.row_hash"),
                    *("indexes.films.max_polls", "defaults.opensearch_ulr", "indexes.films.tabel"),
                    *("indexes.actors.table", "indexes.empty.table"),
                ],
            ),
            (f"defaults: {{select: [a]}}\n{ONE}", ["defaults.select"]),
        ],
    )
    def it_reports_those_of_all_indexes_with_their_place(self, problems, text, expected):
        assert [problem.split(": ")[0] for problem in problems(text)] == expected

    def it_shows_no_secret_of_a_wrong_parameter(self, problems):
        for line in ("tokn: hunter2", "opensearch_password: hunter2\n    opensearch_username: u", "self: hunter2"):
            (problem,) = problems(f"{ONE}    {line}\n")
            place = f"indexes.films.{line.partition(':')[0]}: "
            assert (problem.startswith(place), "hunter2" in problem) == (True, False)

    @pytest.mark.parametrize(
        ("second", "wrong"),
        [
            ("table: lake.ns.b, index: a", "index"),
            ("table: lake.ns.a, index: a, opensearch_url: 'HTTP://127.0.0.1:9200/'", "index"),
            ("table: lake.ns.b, index: a, positions_index: other", "index"),
            ("table: lake.ns.a", ""),
            ("table: lake.ns.a, index: a, opensearch_url: 'https://other:9200'", "dead_letter_table"),
            ("table: lake.ns.b, index: a, opensearch_url: 'https://other:9200'", ""),
            ("table: lake.ns.a, index: a, opensearch_url: 'https://o:9200', dead_letter_table: lake.ns.dead", ""),
        ],
    )
    def it_refuses_two_entries_that_would_overwrite_an_index_or_mix_dead_letters(self, write, problems, second, wrong):
        text = f"indexes:\n  a: {{table: lake.ns.a}}\n  b: {{{second}}}\n"
        found = problems(text) if wrong else SyncConfig.load_all(write(text)) and []
        assert [problem.partition(": ")[0] for problem in found] == [f"indexes.b.{wrong}"] * bool(wrong)
        for name in "ab":  # one entry alone is enough to overwrite the other's index, but not to mix dead letters
            assert problems(text, (name,)) if wrong == "index" else SyncConfig.load(write(text), name)


class DescribeYaml:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("indexes:\n\tfilms: {}\n", "not YAML.*line 2, column 1"),
            ("indexes: " + "[" * 600, "not YAML"),
            (f"{ONE}    table: a.b.c\n", r"has the key 'table' twice \(line 4, column 5\)"),
            (f"{ONE}    mapping: {{a: {{b: 1, b: 2}}}}\n", "has the key 'b' twice.*line 4"),
            ("indexes: {2026: {}}\n", "has a key that is not a string; write it in quotes.*line 1"),
            (f"{ONE}    mapping: &x {{a: *x}}\n", "not YAML: a value cannot be read"),
            (f"{ONE}    branch: !!python/object/apply:os.system x\n", "not YAML.*line 4"),
            ("", "has no indexes"),
            ("indexes: {'': {table: a.b.c}}\n", "indexes: missing"),
            ("defaults: {opensearch_password: hunter2, a: b: c}\n", "not YAML"),
        ],
    )
    def it_refuses_what_it_cannot_read_and_says_where(self, write, text, words):
        with pytest.raises(ConfigError, match=f"(?s){words}.*Remedy: ") as raised:
            SyncConfig.load_all(write(text))
        assert "hunter2" not in str(raised.value)

    def it_reads_a_byte_order_mark_anchors_and_merge_keys_but_no_file_that_cannot_be_read(self, tmp_path):
        (tmp_path / "bad.yml").write_bytes(b"indexes: \xff\xfe")
        for name in ("missing.yml", ".", "bad.yml"):
            with pytest.raises(ConfigError, match=r"The index file .*\[index_file="):
                SyncConfig.load(tmp_path / name)
        text = """
            indexes:
              a: &a {table: lake.ns.a, branch: dev, settings: &s {x: 1, y: 1}}
              b: {<<: [{table: lake.ns.b}, *a], settings: {<<: *s, y: 2}}
            """
        (tmp_path / "a.yml").write_text(dedent(text), encoding="utf-8-sig")
        actual = SyncConfig.load(tmp_path / "a.yml", "b")
        assert (actual.table, actual.branch, actual.settings) == ("lake.ns.b", "dev", {"x": 1, "y": 2})

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("start_from: 2026-01-31T12:00:00Z", "2026-01-31T12:00:00+00:00"), ("start_from: 4875243452", "4875243452"),
            ('branch: "no"', "no"),
            ("settings: {a: true, b: ~, c: '5', d: [1, .5]}", {"a": True, "b": None, "c": "5", "d": [1, 0.5]}),
            ("branch: 010", None), ("branch: 1.10", None), ("branch: no", None), ("columns: [no]", None),
        ],
    )  # fmt: skip
    def it_refuses_what_yaml_makes_of_a_text_instead_of_changing_it(self, write, problems, line, expected):
        name = line.partition(":")[0]
        if expected is None:
            (problem,) = problems(f"{ONE}    {line}\n")
            assert problem.startswith(f"indexes.films.{name}: ")
        else:
            assert repr(getattr(SyncConfig.load(write(f"{ONE}    {line}\n")), name)) == repr(expected)


class DescribeSubstitution:
    EVIL = 'x", "y": "z\n  evil: {table: a.b.c} # ${env:ICECDC_TEST_A}'

    @pytest.fixture(autouse=True)
    def _variables(self, monkeypatch):
        for name, value in {"A": "a", "EMPTY": "", "EVIL": self.EVIL, "SECRET": "hunter2"}.items():
            monkeypatch.setenv(f"ICECDC_TEST_{name}", value)
        monkeypatch.delenv("ICECDC_TEST_UNSET", raising=False)

    def it_replaces_references_in_texts(self, write):
        for text, expected in (
            ("x-${env:ICECDC_TEST_A}-${env:ICECDC_TEST_A}", "x-a-a"),
            ("${env:ICECDC_TEST_UNSET:-d-e:f}", "d-e:f"),
            *(("${env:ICECDC_TEST_EMPTY:-d}", "d"), ("${env:ICECDC_TEST_A:-d}", "a")),
            *(("$$${env:ICECDC_TEST_A}", "$${env:ICECDC_TEST_A}"), ("$5 {a} $", "$5 {a} $")),
        ):
            more = f'select: ["{text}"], mapping: {{a: {{b: ["{text}"]}}}}, spark_conf: {{a: "{text}"}}'
            actual = SyncConfig.load(write(f'indexes: {{films: {{table: lake.ns.t, row_filter: "{text}", {more}}}}}'))
            found = [actual.row_filter, *actual.select, actual.mapping["a"]["b"][0], actual.spark_conf["a"]]
            assert found == [expected] * 4

    def it_puts_in_texts_that_stay_texts_and_leaves_references_to_secrets_for_later(self, write):
        evil = "${env:ICECDC_TEST_EVIL}"
        lines = f"row_filter: {evil}", f"""spark_conf: '{{"a": "{evil}"}}'""", f"""columns: '["{evil}"]'"""
        (actual,) = SyncConfig.load_all(write(ONE + "".join(f"    {line}\n" for line in lines))).values()
        assert [actual.row_filter, actual.spark_conf["a"], *actual.columns] == [self.EVIL] * 3
        later = f"{ONE}    opensearch_username: u\n    opensearch_password: env:ICECDC_TEST_UNSET\n"
        assert SyncConfig.load(write(later)).opensearch_password == "env:ICECDC_TEST_UNSET"

    def it_names_place_and_variable_of_what_it_cannot_replace(self, problems):
        for text, words in (
            ("${env:ICECDC_TEST_UNSET}", "the environment variable ICECDC_TEST_UNSET is not set"),
            ("${secret:a/b}", "has ${ that begins no reference"),
        ):
            file = f"""
                defaults: {{metrics_folder: "{text}"}}
                indexes: {{a: {{table: "{text}"}}, b: {{table: l.n.t, mapping: {{t: {{type: "{text}"}}}}}}}}
                """
            places = ("defaults.metrics_folder", "indexes.a.table", "indexes.b.mapping.t.type")
            found = [problem.split(". Remedy")[0] for problem in problems(file)]
            assert found == [f"{each}: {words}" for each in places]

    @pytest.mark.parametrize(
        ("place", "line"),
        [
            ("opensearch_password", 'opensearch_password: "secret:${env:ICECDC_TEST_SECRET}/key"'),
            ("opensearch_password", 'opensearch_password: "${env:ICECDC_TEST_UNSET:-hunter2}"'),
            ("catalog_properties.token", 'catalog_properties: {token: "${env:ICECDC_TEST_SECRET}"}'),
            ("catalog_properties.uri", 'catalog_properties: {uri: "jdbc:pg://u:${env:ICECDC_TEST_SECRET}@h/db"}'),
            ("spark_conf.a", """spark_conf: '{"a": "jdbc:pg://h/db?password=${env:ICECDC_TEST_SECRET}"}'"""),
        ],
    )
    @pytest.mark.parametrize("section", ["defaults", "indexes.films"])
    def it_writes_no_secret_into_a_configuration(self, problems, section, place, line):
        given = {"defaults": "", "indexes.films": "table: lake.shop.film, "}
        given[section] += "opensearch_username: u, " * line.startswith("opensearch") + line
        (problem,) = problems(f"defaults: {{{given['defaults']}}}\nindexes: {{films: {{{given['indexes.films']}}}}}\n")
        assert problem.startswith(f"{section}.{place}: may hold a secret")
        assert ("write env:ICECDC_TEST_" in problem, "hunter2" in problem) == (True, False)

    def it_writes_no_secret_into_an_expression(self, problems):
        for line in (
            """select: ["sha2(concat('${env:ICECDC_TEST_SECRET}', email), 256) AS owner"]""",
            """row_filter: "email <> '${env:ICECDC_TEST_TOKEN:-hunter2}'\"""",
        ):
            (problem,) = problems(f"{ONE}    {line}\n")
            assert problem.startswith(f"indexes.films.{line.partition(':')[0]}: may hold a secret")
            assert ("Remedy: leave ICECDC_TEST_" in problem, "hunter2" in problem) == (True, False)


class DescribeIngests:
    def it_loads_ingests_with_their_tables(self, write):
        path = write("""
            defaults: {bootstrap_servers: "b:1", table_properties: {x: 1}}
            ingests:
              shop: {topics: a, route_by: topic, namespace: lake.shop, tables: {a: {table_properties: {y: 2}}}}
              log: {topics: b, table: lake.shop.log}
            """)
        shop, log = IngestConfig.load_all(path).values()
        assert (shop.job, log.job, IngestConfig.load(path, "log")) == ("shop", "log", log)
        assert [config.for_table("lake.shop.a").table_properties for config in (shop, log)] == [{"y": "2"}, {"x": "1"}]

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("indexes: {}", "indexes: unknown. Remedy: the file has defaults and ingests."),
            ("defaults: {topics: a}\ningests: {a: {}}", "defaults.topics: describes one ingest."),
            ("ingests: {a: {bootstrap_servers: 'b:1', topics: t, table: l.a.t, tables: {t: {mode: x}}}}",
             "ingests.a.tables.t.mode: input should be 'append', 'upsert' or 'history'"),
            ("ingests: {a: &a {bootstrap_servers: 'b:1', topics: t, table: l.a.t, job: j}, b: *a}",
             "ingests.b.job: is also the job of ingests.a."),
        ],
    )  # fmt: skip
    def it_says_where_a_problem_is(self, write, text, problem):
        with pytest.raises(ConfigError) as caught:
            IngestConfig.load_all(write(text))
        assert any(each.startswith(problem) for each in caught.value.problems), caught.value.problems

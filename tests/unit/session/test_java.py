"""The choice of a Java installation, and the error when none fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from icecdc_core.errors import JavaNotFoundError
from icecdc_core.session.java import (
    JavaHome,
    candidate_homes,
    find_java,
    find_spark_java,
    parse_version,
    read_java_home,
)


def _java_home(home: Path, release: str = "", script: str = "#!/bin/sh\nexit 1\n") -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(script)
    (home / "bin" / "java").chmod(0o755)
    if release:
        (home / "release").write_text(release)
    return home


class DescribeParseVersion:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ('JAVA_VERSION="17.0.15"', 17),
            ('IMPLEMENTOR="Eclipse Adoptium"\nJAVA_VERSION="21"\n', 21),
            ('JAVA_VERSION="1.8.0_402"', 8),
            ('openjdk version "25.0.3" 2026-04-21 LTS', 25),
            ('java version "1.8.0_402"', 8),
            ('openjdk version "24-ea" 2025-03-18', 24),
            ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
            ("", None),
        ],
    )
    def it_reads_the_feature_version(self, text: str, expected: int | None) -> None:
        actual = parse_version(text)
        assert actual == expected


class DescribeReadJavaHome:
    def it_reads_version_and_modules_from_the_release_file(self, tmp_path: Path) -> None:
        home = _java_home(tmp_path / "jdk", 'JAVA_VERSION="21.0.2"\nMODULES="java.base java.sql"\n')
        actual = read_java_home(home)
        assert actual == JavaHome(home, 21, frozenset({"java.base", "java.sql"}))

    def it_asks_a_shim_for_its_real_home(self, tmp_path: Path) -> None:
        real = _java_home(tmp_path / "real")
        shim = _java_home(
            tmp_path / "shims",
            script=f"#!/bin/sh\necho '    java.home = {real}' >&2\necho 'openjdk version \"17.0.9\" 2023-10-17' >&2\n",
        )
        actual = read_java_home(shim)
        assert actual == JavaHome(real, 17)

    def it_passes_over_a_java_that_does_not_start(self, tmp_path: Path) -> None:
        actual = read_java_home(_java_home(tmp_path / "broken"))
        assert actual is None

    def it_passes_over_a_folder_without_java(self, tmp_path: Path) -> None:
        (tmp_path / "release").write_text('JAVA_VERSION="17.0.1"')
        actual = read_java_home(tmp_path)
        assert actual is None

    def it_sees_one_installation_behind_two_names(self, tmp_path: Path) -> None:
        home = _java_home(tmp_path / "jdk-17", 'JAVA_VERSION="17.0.1"')
        (tmp_path / "default").symlink_to(home)
        actual = read_java_home(tmp_path / "default")
        assert actual == JavaHome(home, 17)


class DescribeCandidateHomes:
    def it_prefers_the_users_choice_to_the_usual_folders(self, tmp_path: Path) -> None:
        on_path = _java_home(tmp_path / "on-path", 'JAVA_VERSION="17.0.1"')
        environment = {"JAVA_HOME": str(tmp_path / "chosen"), "PATH": str(on_path / "bin")}
        actual = list(candidate_homes(environment))[:2]
        assert actual == [tmp_path / "chosen", on_path]

    def it_does_without_a_choice(self, tmp_path: Path) -> None:
        actual = list(candidate_homes({"PATH": str(tmp_path)}))
        assert all(home.is_absolute() for home in actual)


class DescribeFindJava:
    def it_chooses_the_first_in_range(self, tmp_path: Path) -> None:
        homes = [_java_home(tmp_path / str(v), f'JAVA_VERSION="{v}.0.1"') for v in (11, 25, 21, 17)]
        actual = find_java(17, 22, homes=homes)
        assert actual == JavaHome(tmp_path / "21", 21)

    def it_has_no_upper_limit_by_default(self, tmp_path: Path) -> None:
        actual = find_java(21, homes=[_java_home(tmp_path / "99", 'JAVA_VERSION="99"')])
        assert actual.version == 99

    def it_passes_over_a_trimmed_runtime(self, tmp_path: Path) -> None:
        trimmed = _java_home(tmp_path / "trimmed", 'JAVA_VERSION="17.0.1"\nMODULES="java.base"\n')
        full = _java_home(tmp_path / "full", 'JAVA_VERSION="17.0.1"\nMODULES="java.base jdk.localedata"\n')
        actual = find_java(17, modules=["jdk.localedata"], homes=[trimmed, full])
        assert actual.path == full

    def it_says_what_was_found_and_what_is_needed(self, tmp_path: Path) -> None:
        new = _java_home(tmp_path / "new", 'JAVA_VERSION="25.0.3"')
        old = _java_home(tmp_path / "old", 'JAVA_VERSION="1.8.0_402"')
        with pytest.raises(JavaNotFoundError) as caught:
            find_java(17, 22, purpose="Spark", homes=[new, old])
        expected = f"No suitable Java for Spark: need Java 17 to 22, found Java 25 in {new}, Java 8 in {old}"
        assert caught.value.message == expected

    def it_says_which_modules_a_trimmed_runtime_lacks(self, tmp_path: Path) -> None:
        trimmed = _java_home(tmp_path / "trimmed", 'JAVA_VERSION="17.0.1"\nMODULES="java.base"\n')
        with pytest.raises(JavaNotFoundError, match=r"\(without jdk\.localedata\)"):
            find_java(17, modules=["jdk.localedata"], homes=[trimmed])

    def it_says_how_to_get_one(self) -> None:
        with pytest.raises(JavaNotFoundError, match=r"found none .*install a full JDK 21.*set JAVA_HOME"):
            find_java(17, 22, homes=[])


class DescribeFindSparkJava:
    def it_ignores_a_java_home_that_spark_cannot_use(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        too_new = _java_home(tmp_path / "25", 'JAVA_VERSION="25.0.3"')
        good = _java_home(tmp_path / "17", 'JAVA_VERSION="17.0.1"')
        monkeypatch.setenv("JAVA_HOME", str(too_new))
        monkeypatch.setenv("PATH", str(good / "bin"))
        assert find_spark_java() == JavaHome(good, 17)

"""Errors name the value found and the remedy, and cross process borders."""

import pickle
import re

import pytest

from icecdc_core import errors
from icecdc_core.errors import ConfigError, IcecdcError, TableNotFoundError


class DescribeIcecdcError:
    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (IcecdcError("No such table"), "No such table."),
            (IcecdcError("No such table", subject="table"), "No such table [table]."),
            (IcecdcError("No such table", subject="table", value="a.b.c"), "No such table [table='a.b.c']."),
            (
                IcecdcError("No such table", subject="table", value="a.b.c", remedy="create it"),
                "No such table [table='a.b.c']. Remedy: create it",
            ),
        ],
    )
    def it_reads_as_prose(self, error, expected):
        assert str(error) == expected

    def it_survives_pickling(self):
        error = TableNotFoundError("No such table", subject="table", value="a.b.c", remedy="create it")
        assert str(pickle.loads(pickle.dumps(error))) == str(error)

    def it_is_the_base_of_a_family_in_which_everyone_is_documented(self):
        family = [item for item in vars(errors).values() if getattr(item, "__module__", "") == errors.__name__]
        assert [item.__name__ for item in family if not (issubclass(item, IcecdcError) and item.__doc__)] == []


class DescribeConfigError:
    def it_lists_every_problem(self):
        error = ConfigError("2 parameters are wrong", problems=["a: bad.", "b: worse."])
        assert str(error) == "2 parameters are wrong:\n- a: bad.\n- b: worse."

    def it_is_its_own_problem_when_there_is_only_one(self):
        error = ConfigError("Not a condition", subject="row_filter", value="1 +", remedy="correct it")
        assert error.problems == [str(error)] == ["Not a condition [row_filter='1 +']. Remedy: correct it"]


class DescribeAnErrorInANotebook:
    def it_shows_what_is_wrong_and_what_to_do_instead_of_a_traceback(self):
        error = TableNotFoundError("No such table", subject="table", value="a.b.c", remedy="name another one")
        shown = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in error._render_traceback_()]
        assert shown == ["TableNotFoundError", "No such table [table='a.b.c'].", "What to do: name another one"]

    def it_shows_every_problem_of_the_parameters(self):
        problems = ["a: is wrong. Remedy: correct a.", "b: is wrong. Remedy: correct b."]
        shown = ConfigError("2 parameters are wrong", problems=problems)._render_traceback_()
        assert len(shown) == 6

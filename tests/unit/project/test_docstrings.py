"""Public functions document their parameters, if they have two or more, and the errors that they raise themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "icecdc_core"


def public_functions(module: ast.Module) -> Iterator[tuple[ast.FunctionDef, ast.ClassDef | None]]:
    """The public functions of a module, and the public methods of its public classes, each with its class."""
    for node in module.body:
        owner = node if isinstance(node, ast.ClassDef) and not node.name.startswith("_") else None
        for each in owner.body if owner else [node]:
            if isinstance(each, ast.FunctionDef) and not each.name.startswith("_") and not is_a(each, "overload"):
                yield each, owner


def is_a(function: ast.FunctionDef, decorator: str) -> bool:
    return decorator in map(ast.unparse, function.decorator_list)


def parameters(function: ast.FunctionDef, is_method: bool) -> list[str]:
    given = function.args
    first = [*given.posonlyargs, *given.args][is_method:]
    return [each.arg for each in (*first, given.vararg, *given.kwonlyargs, given.kwarg) if each]


def documented(docstring: str) -> list[str]:
    section = re.search(r"^Args:\n((?: .*\n?|\n)*)", docstring, re.MULTILINE)
    return re.findall(r"^ {4}\*{0,2}(\w+):", section[1], re.MULTILINE) if section else []


def raises(node: ast.AST) -> bool:
    """Whether code raises an error of its own: neither in a function inside it, nor the one that it handles."""
    inner = [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.FunctionDef | ast.ClassDef)]
    return (isinstance(node, ast.Raise) and node.exc is not None) or any(map(raises, inner))


def problems(modules: dict[str, ast.Module]) -> list[str]:
    functions = [(name, *found) for name, module in modules.items() for found in public_functions(module)]
    methods = {(owner.name, function.name) for _, function, owner in functions if owner}
    found = []
    for module, function, owner in functions:
        docstring = ast.get_docstring(function) or ""
        names = parameters(function, is_method=owner is not None and not is_a(function, "staticmethod"))
        # The method of the base class documents the parameters of an override.
        is_override = any((ast.unparse(base), function.name) in methods for base in (owner.bases if owner else ()))
        expected = names if "Args:\n" in docstring or (len(names) > 1 and not is_override) else []
        if documented(docstring) != expected:
            found.append(f"{module}: {function.name}: Args of {documented(docstring)}, not of {expected}")
        if "Raises:\n" not in docstring and raises(function):
            found.append(f"{module}: {function.name}: no Raises")
    return found


class DescribeDocstringsOfPublicFunctions:
    def it_documents_parameters_and_errors(self):
        files = [path for path in sorted(PACKAGE.rglob("*.py")) if not re.match("_[^_]", path.name)]
        modules = {str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8")) for path in files}
        assert problems(modules) == []

    @pytest.mark.parametrize(
        ("source", "problem"),
        [
            ('def f(a, *b):\n    """Do."""', "f: Args of [], not of ['a', 'b']"),
            ('def f(a, b):\n    """Do.\n\n    Args:\n        a: One.\n    """', "f: Args of ['a'], not of ['a', 'b']"),
            ('def f(a):\n    """Do.\n\n    Args:\n        z: One.\n    """', "f: Args of ['z'], not of ['a']"),
            ('class C:\n    def f(self, a, b):\n        """Do."""', "f: Args of [], not of ['a', 'b']"),
            ('def f(a):\n    """Do."""\n    if a:\n        raise ValueError(a)', "f: no Raises"),
        ],
    )
    def it_finds_what_is_missing_or_invented(self, source, problem):
        assert problems({"m": ast.parse(source)}) == [f"m: {problem}"]

"""A stand-in for `dbutils` that behaves like the real one: texts only, widgets that keep their value, a hard exit."""

import json
from types import SimpleNamespace


class NotebookExit(BaseException):
    """What the real `dbutils.notebook.exit` ends a notebook with: not an Exception, so nothing catches it."""


class Widgets:
    """`dbutils.widgets` as it behaves: texts only, an existing value stays, an unknown name is an error."""

    def __init__(self, passed: dict[str, str]) -> None:
        assert all(isinstance(value, str) for value in passed.values())
        self._values = dict(passed)

    def text(self, name: str, default: str, label: str | None = None) -> None:
        if not isinstance(default, str):
            raise TypeError(f"defaultValue of {name} must be a string, not {type(default).__name__}")
        self._values.setdefault(name, default)

    def get(self, name: str) -> str:
        if name not in self._values:
            raise ValueError(f"InputWidgetNotDefined: No input widget named {name} is defined")
        return self._values[name]

    def getAll(self) -> dict[str, str]:
        return dict(self._values)


class OldWidgets(Widgets):
    """The widgets of a runtime that cannot list them."""

    getAll = None  # noqa: N815


class Dbutils:
    def __init__(self, widgets: type[Widgets] = Widgets, **passed: str) -> None:
        self.widgets = widgets(passed)
        self.notebook = SimpleNamespace(exit=_exit)
        texts: dict[str, str] = {}  # of a task that later tasks read: what has a JSON text
        values = SimpleNamespace(texts=texts, set=lambda key, value: texts.update({key: json.dumps(value)}))
        self.jobs = SimpleNamespace(taskValues=values)


def _exit(value: str) -> None:
    if not isinstance(value, str):
        raise TypeError("notebook.exit takes a string")
    raise NotebookExit(value)

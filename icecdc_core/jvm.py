"""Functions and predicates made of Java method handles, so that loops over Java objects run inside the JVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

Getters = Sequence[tuple[str, str]]
"""A chain of getters, each a class name and the name of a method without parameters."""

_SEPARATOR = "\0"


class JvmFunctions:
    """Applies chains of getters to the items of a Java list.

    Args:
        spark: The session whose JVM is used; classes come from its context class loader, which knows attached
            jars.
    """

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        self._invoke = jvm.java.lang.invoke
        self._lookup = self._invoke.MethodHandles.publicLookup()

    def strings(self, getters: Getters, items: Any) -> list[str]:
        """Return the text of what the getters give for every item; it crosses as one string."""
        if items.isEmpty():
            return []
        handle = self._then(self._chain(getters), self._static("java.lang.String", "valueOf", "java.lang.Object"))
        closeable = self._jvm.org.apache.iceberg.io.CloseableIterable
        values = closeable.transform(closeable.combine(items, None), self._as("java.util.function.Function", handle))
        return str(self._jvm.java.lang.String.join(_SEPARATOR, values)).split(_SEPARATOR)

    def numbers(self, getters: Getters, items: Any) -> list[int]:
        """Return the whole numbers that the getters give."""
        return [int(value) for value in self.strings(getters, items)]

    def contains(self, getters: Getters, wanted: Any, or_positive: Getters | None = None) -> Any:
        """Return a predicate: what the getters give is in the set, or what the other getters give is above zero."""
        contains = self._class("java.util.Set").getMethod("contains", self._classes("java.lang.Object"))
        listed = self._then(self._chain(getters), self._lookup.unreflect(contains).bindTo(wanted))
        if or_positive is None:
            return self._as("java.util.function.Predicate", listed)
        handles, boolean = self._invoke.MethodHandles, self._jvm.java.lang.Boolean.TYPE
        positive = self._then(self._chain(or_positive), self._static("java.lang.Integer", "signum", "int"))
        # An int becomes a boolean by its lowest bit, which is what signum leaves.
        positive = handles.explicitCastArguments(positive, positive.type().changeReturnType(boolean))
        # Both take the item, but as the class that declares their first getter.
        positive = positive.asType(listed.type())
        always = handles.dropArguments(handles.constant(boolean, True), 0, listed.type().parameterList())
        return self._as("java.util.function.Predicate", handles.guardWithTest(positive, always, listed))

    def static_get(self, name: str) -> Any:
        """Call the static ``get()`` of a class.

        py4j picks one at random when a class has a static and an instance method of one name, so go by
        reflection.
        """
        nothing = self._gateway.new_array(self._jvm.java.lang.Object, 0)
        return self._class(name).getMethod("get", self._classes()).invoke(None, nothing)

    def _chain(self, getters: Getters) -> Any:
        handle = None
        for owner, method in getters:
            getter = self._lookup.unreflect(self._class(owner).getMethod(method, self._classes()))
            handle = getter if handle is None else self._then(handle, getter)
        return handle

    def _then(self, first: Any, second: Any) -> Any:
        adapted = second.asType(second.type().changeParameterType(0, first.type().returnType()))
        return self._invoke.MethodHandles.filterReturnValue(first, adapted)

    def _as(self, interface: str, handle: Any) -> Any:
        return self._invoke.MethodHandleProxies.asInterfaceInstance(self._class(interface), handle)

    def _static(self, owner: str, method: str, parameter: str) -> Any:
        return self._lookup.unreflect(self._class(owner).getMethod(method, self._classes(parameter)))

    def _class(self, name: str) -> Any:
        if name == "int":
            return self._jvm.java.lang.Integer.TYPE
        return self._jvm.java.lang.Class.forName(name, True, self._loader)

    def _classes(self, *names: str) -> Any:
        array = self._gateway.new_array(self._jvm.java.lang.Class, len(names))
        for position, name in enumerate(names):
            array[position] = self._class(name)
        return array

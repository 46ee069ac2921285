"""Functions and predicates made of Java method handles, so that loops over Java objects run inside the JVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import SparkSession

Getters = Sequence[tuple[str, ...]]
"""A chain of calls, tuples throughout: a class name, a method's name and, of a static method, its parameter's class."""

_SEPARATOR = "\0"
_STRING = "java.lang.String"
_ITERABLE = "org.apache.iceberg.io.CloseableIterable"
_SORTED_SET = "org.apache.iceberg.relocated.com.google.common.collect.ImmutableSortedSet"


def java_class(spark: SparkSession, name: str) -> Any:
    """Return a class of Spark's JVM, as the gateway shows it, by its whole name.

    Of ``spark._jvm.org.apache.iceberg.Schema`` the gateway asks for every part in turn whether it is a class, and for
    each that is none the JVM looks into all its jars: a third of what a driver with little to do would do.
    """
    return getattr(spark._jvm, name)


def iceberg_class(spark: SparkSession, name: str) -> Any:
    """Return a class of Iceberg's Java library, by its name below ``org.apache.iceberg``."""
    return java_class(spark, f"org.apache.iceberg.{name}")


class JvmFunctions:
    """Applies chains of getters to the items of a Java list.

    Args:
        spark: The session whose JVM is used; classes come from its context class loader, which knows attached
            jars.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._gateway: Any = spark.sparkContext._gateway
        self._loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()
        self._handles = java_class(spark, "java.lang.invoke.MethodHandles")
        self._lookup = self._handles.publicLookup()
        self._object_class = java_class(spark, "java.lang.Class")
        # Making a handle takes dozens of calls into the JVM, and a table asks for the same few again and again.
        self._known: dict[Any, Any] = {}

    def strings(self, getters: Getters, items: Any) -> list[str]:
        """Return the text of what the getters give for every item; it crosses as one string."""
        return self._texts(("strings", getters), lambda: self._chain(getters), items)

    def numbers(self, getters: Getters, items: Any) -> list[int]:
        """Return the whole numbers that the getters give."""
        return [int(value) for value in self.strings(getters, items)]

    def items(self, getters: Getters, items: Any) -> Any:
        """Return a Java iterable of what the getters give."""
        return self._transformed(self._as("java.util.function.Function", self._chain(getters)), items)

    def contains(self, getters: Getters, wanted: Any, or_positive: Getters | None = None) -> Any:
        """Return a predicate: what the getters give is in the set, or what the other getters give is above zero."""
        contains = self._class("java.util.Set").getMethod("contains", self._classes("java.lang.Object"))
        listed = self._then(self._chain(getters), self._lookup.unreflect(contains).bindTo(wanted))
        if or_positive is None:
            return self._as("java.util.function.Predicate", listed)
        boolean = self._java("java.lang.Boolean").TYPE
        positive = self._then(self._chain(or_positive), self._static("java.lang.Integer", "signum", "int"))
        # An int becomes a boolean by its lowest bit, which is what signum leaves.
        positive = self._handles.explicitCastArguments(positive, positive.type().changeReturnType(boolean))
        # Both take the item, but as the class that declares their first getter.
        positive = positive.asType(listed.type())
        always = self._handles.dropArguments(self._handles.constant(boolean, True), 0, listed.type().parameterList())
        return self._as("java.util.function.Predicate", self._handles.guardWithTest(positive, always, listed))

    def digests(self, getters: Getters, pair: tuple[Getters, Getters], items: Any) -> list[str]:
        """Return one 128-bit digest for each item: of the set of pairs of texts that its list holds.

        Args:
            getters: They give the list of an item.
            pair: They give the two texts of an element of that list.
            items: A Java list.
        """
        return self._texts(("digests", getters, pair), lambda: self._digest(getters, pair), items)

    def _digest(self, getters: Getters, pair: tuple[Getters, Getters]) -> Any:
        first, second = (self._text(self._chain(part)) for part in pair)
        owner = self._class(pair[0][0][0])
        concat = self._lookup.unreflect(self._class(_STRING).getMethod("concat", self._classes(_STRING)))
        both = self._handles.filterArguments(
            concat,
            0,
            self.array(
                self._java("java.lang.invoke.MethodHandle"),
                self._of(first, owner),
                self._of(second, owner),
            ),
        )
        once = both.type().dropParameterTypes(1, 2)
        text = self._handles.permuteArguments(both, once, self.array(self._java("int"), 0, 0))
        transform = self._static(_ITERABLE, "transform", _ITERABLE, "java.util.function.Function")
        function = self.array(self._java("java.lang.Object"), self._as("java.util.function.Function", text))
        handle = self._then(self._chain(getters), self._static(_ITERABLE, "withNoopClose", "java.lang.Iterable"))
        handle = self._then(handle, self._handles.insertArguments(transform, 1, function))
        handle = self._then(handle, self._static(_SORTED_SET, "copyOf", "java.lang.Iterable"))
        bytes_of = self._lookup.unreflect(self._class(_STRING).getMethod("getBytes", self._classes()))
        handle = self._then(self._text(handle), bytes_of)
        return self._then(handle, self._static("java.util.UUID", "nameUUIDFromBytes", "[B"))

    def _java(self, name: str) -> Any:
        return java_class(self._spark, name)

    def static_get(self, name: str) -> Any:
        """Call the static ``get()`` of a class.

        py4j picks one at random when a class has a static and an instance method of one name, so go by
        reflection.
        """
        nothing = self.array(self._java("java.lang.Object"))
        return self._class(name).getMethod("get", self._classes()).invoke(None, nothing)

    def _texts(self, key: Any, make: Callable[[], Any], items: Any) -> list[str]:
        if items.isEmpty():
            return []
        if key not in self._known:
            self._known[key] = self._as("java.util.function.Function", self._text(make()))
        values = self._transformed(self._known[key], items)
        return str(self._java("java.lang.String").join(_SEPARATOR, values)).split(_SEPARATOR)

    def _transformed(self, function: Any, items: Any) -> Any:
        closeable = self._java(_ITERABLE)
        return closeable.transform(closeable.combine(items, None), function)

    def _chain(self, getters: Getters) -> Any:
        handle = None
        for owner, method, *parameter in getters:
            getter = self._lookup.unreflect(self._class(owner).getMethod(method, self._classes(*parameter)))
            handle = getter if handle is None else self._then(handle, getter)
        return handle

    def _then(self, first: Any, second: Any) -> Any:
        adapted = second.asType(second.type().changeParameterType(0, first.type().returnType()))
        return self._handles.filterReturnValue(first, adapted)

    def _text(self, handle: Any) -> Any:
        return self._then(handle, self._static(_STRING, "valueOf", "java.lang.Object"))

    def _of(self, handle: Any, owner: Any) -> Any:
        """The handle with its parameter narrowed to a class."""
        return handle.asType(handle.type().changeParameterType(0, owner))

    def _as(self, interface: str, handle: Any) -> Any:
        return self._java("java.lang.invoke.MethodHandleProxies").asInterfaceInstance(self._class(interface), handle)

    def _static(self, owner: str, method: str, *parameters: str) -> Any:
        return self._lookup.unreflect(self._class(owner).getMethod(method, self._classes(*parameters)))

    def _class(self, name: str) -> Any:
        if name == "int":
            return self._java("java.lang.Integer").TYPE
        if name not in self._known:
            self._known[name] = self._object_class.forName(name, True, self._loader)
        return self._known[name]

    def _classes(self, *names: str) -> Any:
        return self.array(self._object_class, *(self._class(name) for name in names))

    def array(self, kind: Any, *values: Any) -> Any:
        """Return a Java array; ``kind`` is the class as the gateway shows it."""
        array = self._gateway.new_array(kind, len(values))
        for position, value in enumerate(values):
            array[position] = value
        return array

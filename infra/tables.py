"""Tables of an environment's file that are made from types of the package.

The tables `options`, `options.objects` and `limits` have the names, types and defaults of the
fields of `s3unzip.model.Options`, `s3unzip.ObjectProperties` and `s3unzip.zip.Limits`. Reading the
file turns each table into a value of its type.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Struct, to_builtins
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, create_model
from pydantic.fields import FieldInfo
from pydantic_core.core_schema import (
    CoreSchema,
    no_info_after_validator_function,
    plain_serializer_function_ser_schema,
)

from s3unzip.contradictions import check_options
from s3unzip.errors import UsageError
from s3unzip.model import Options
from s3unzip.object_properties import ObjectProperties
from s3unzip.options import RunOption, read_options
from s3unzip.zip import Limits


class Section(BaseModel):
    """A table of the file: unknown names and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class MadeSection(Section):
    """A table whose settings are the fields of a type of the package."""

    made_of: ClassVar[type[Struct]]


class FromTable:
    """Tells pydantic to read a value of the package from a table with the same fields.

    It is used in annotations: ``Annotated[Options, FromTable(...)]``.
    """

    def __init__(self, section: type[MadeSection], path: str) -> None:
        self.section = section
        self._path = path  # of the table in the file

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return a schema that validates the table, then converts it to the value."""
        return no_info_after_validator_function(
            self._make,
            handler.generate_schema(self.section),
            serialization=plain_serializer_function_ser_schema(to_builtins),
        )

    def _make(self, table: MadeSection) -> Struct:
        """Return the value for a table; refuse settings that contradict each other."""
        settings = ((name, getattr(table, name)) for name in table.model_fields_set)
        try:
            value = table.made_of(**{name: value for name, value in settings if value is not None})
            _check_value(value)
        except UsageError as error:
            raise ValueError(f"{self._path}{error}") from error
        return value


def _check_value(value: Struct) -> None:
    """Do the checks that are not done when the value is created; they raise `UsageError`."""
    if isinstance(value, ObjectProperties):
        value.check()
    elif isinstance(value, Options):
        check_options(value, naming=str)  # a message names an option as the file does


def _make_section(
    made_of: type[Struct], title: str, settings: Mapping[str, tuple[Any, Any]]
) -> type[MadeSection]:
    """Return the class of a table with these settings, each with its type and its default."""
    name = f"{made_of.__name__}Section"
    fields: dict[str, Any] = dict(settings)
    section = create_model(name, __base__=MadeSection, __doc__=title, **fields)
    section.made_of = made_of
    return section


def _option_settings(made_of: type[Struct]) -> dict[str, tuple[Any, Any]]:
    """Return the type and the default of each field of `made_of` that a file can set."""
    return {
        row.field: (_setting_type(row), _setting_default(row))
        for row in read_options(made_of)
        if row.in_file
    }


def _setting_type(row: RunOption) -> Any:
    """Return the type of an option in a file."""
    kind = row.kind
    if kind is ObjectProperties:
        return PropertiesTable
    if row.choices:
        kind = Literal[tuple(row.choices)]
    elif kind == tuple[str, ...]:
        kind = list[str]
    elif kind is int:
        kind = Annotated[int, Field(ge=row.minimum, le=row.maximum_in_file)]
    if row.default is None:
        return kind | None
    return kind


def _setting_default(row: RunOption) -> Any:
    """Return the default of an option in a file; the default of a table is an empty table."""
    if row.kind is ObjectProperties:
        return Field(default_factory=ObjectProperties)
    return list(row.default) if isinstance(row.default, tuple) else to_builtins(row.default)


def table_of(field: FieldInfo) -> Any:
    """Return the type of a setting in the file; if the setting is a table, its section."""
    tables = (mark.section for mark in field.metadata if isinstance(mark, FromTable))
    return next(tables, field.annotation)


PropertiesTable = Annotated[
    ObjectProperties,
    FromTable(
        _make_section(
            ObjectProperties,
            "What is set on every member besides its content: `s3unzip.ObjectProperties`.",
            _option_settings(ObjectProperties),
        ),
        "options.objects: ",
    ),
]
OptionsTable = Annotated[
    Options,
    FromTable(
        _make_section(
            Options,
            "The options of every run of this environment: `s3unzip.model.Options`.",
            _option_settings(Options),
        ),
        "",
    ),
]
MAX_LIMITS = {"key_bytes": 1_024, "parts": 500}
LimitsTable = Annotated[
    Limits,
    FromTable(
        _make_section(
            Limits,
            "Limits of archives: `s3unzip.zip.Limits`; a limit that is left out keeps its default.",
            {
                name: (Annotated[int, Field(gt=0, le=MAX_LIMITS.get(name))] | None, None)
                for name in Limits.__struct_fields__
            },
        ),
        "",
    ),
]

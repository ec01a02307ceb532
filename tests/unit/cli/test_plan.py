"""The command `plan`: which rules an estimate for an environment has."""

from hypothesis import given, strategies as st

from s3unzip.cli.plan import override_options
from s3unzip.model import OnConflict, Options
from s3unzip.object_properties import ObjectProperties

ENVIRONMENT = Options(
    key_template="{member}",
    on_conflict=OnConflict.NEVER,
    include=("*.json",),
    exclude=("tmp/**",),
    nested_depth=2,
    objects=ObjectProperties(storage_class="STANDARD_IA"),
    marker=True,
)


def test_an_environment_s_options_are_all_planned() -> None:
    """Selection, nesting and properties of objects are those of the environment."""
    assert override_options(ENVIRONMENT, Options()) == ENVIRONMENT


@given(st.sampled_from([("*.csv",), ("a/**", "b")]), st.integers(1, 5))
def test_typed_options_replace_those_of_the_environment(
    include: tuple[str, ...], limit: int
) -> None:
    """The options that nobody typed stay."""
    planned = override_options(ENVIRONMENT, Options(include=include, limit=limit))
    assert (planned.include, planned.limit) == (include, limit)
    assert (planned.exclude, planned.nested_depth) == (("tmp/**",), 2)

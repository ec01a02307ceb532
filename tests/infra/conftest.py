"""The templates of the variants in `tests.support.assemblies`."""

import json
from collections.abc import Callable

import pytest

from infra.environment_file import load_environment
from tests.infra.templates import Synthesized
from tests.support.assemblies import VARIANTS, synthesize_once


@pytest.fixture(scope="session")
def synthesized(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Synthesized]:
    def read(variant: str) -> Synthesized:
        path = synthesize_once(tmp_path_factory, variant).template
        name, settings = VARIANTS[variant]
        return Synthesized(
            load_environment(name, settings=settings), path, json.loads(path.read_text())
        )

    return read


@pytest.fixture(scope="session")
def dev(synthesized: Callable[[str], Synthesized]) -> Synthesized:
    return synthesized("dev")


@pytest.fixture(scope="session")
def prod(synthesized: Callable[[str], Synthesized]) -> Synthesized:
    return synthesized("prod")


@pytest.fixture(scope="session")
def options(synthesized: Callable[[str], Synthesized]) -> Synthesized:
    """The template of an environment that sets what dev leaves out."""
    return synthesized("options")


@pytest.fixture(scope="session")
def nested(synthesized: Callable[[str], Synthesized]) -> Synthesized:
    return synthesized("nested")


@pytest.fixture(scope="session")
def company(synthesized: Callable[[str], Synthesized]) -> Synthesized:
    return synthesized("company")

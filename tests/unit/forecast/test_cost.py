"""The bill, against sums made by hand."""

from __future__ import annotations

import pytest

from s3unzip import rates
from s3unzip.forecast import Latency, aws, local
from s3unzip.forecast.cost import Usage, express_seconds, price
from s3unzip.model import Requests
from s3unzip.object_properties import STORAGE_CLASSES, ObjectProperties

USAGE = Usage(
    members=1_000_000,
    requests=Requests(get=5_000, head=1_000, put=1_000_250, create=1, part=3, complete=1, list=5),
    invocations=252,
    lambda_seconds=5_000.0,
    children=250,
    express_seconds=4_900.0,
    transitions=4,
)


def test_a_million_members_by_hand() -> None:
    """Each service's line is quantity times the documented price."""
    cost = price(USAGE, aws(memory_mb=2048))
    by_service = cost.by_service()
    assert by_service["S3"] == pytest.approx(1_000_260 * 0.005 / 1000 + 6_000 * 0.0004 / 1000)
    assert by_service["Lambda"] == pytest.approx(10_000 * 0.0000133334 + 252 * 0.20 / 1e6)
    assert by_service["Step Functions"] == pytest.approx(
        250 / 1e6 + 4_900 * 64 / 1024 * 0.00001667 + 4 * 0.025 / 1000
    )
    assert by_service["SQS"] == pytest.approx(3 * 0.40 / 1e6)
    assert by_service["EventBridge"] == pytest.approx(1e-6)
    assert by_service["CloudWatch"] == pytest.approx(252 * 1_500 * 0.5 / 1e9)
    assert cost.total == pytest.approx(sum(by_service.values()))
    assert cost.unavoidable == pytest.approx(5.0)
    assert cost.unavoidable_share == pytest.approx(5.0 / cost.total)
    assert 0.95 < cost.unavoidable_share < 1


@pytest.mark.parametrize(
    ("storage_class", "writes", "each"),
    [
        ("STANDARD_IA", 1_000_000 + 5, 0.01 / 1000),
        ("GLACIER_IR", 1_000_000 + 5, 0.02 / 1000),
        ("DEEP_ARCHIVE", 1_000_000 + 1, 0.05 / 1000),  # its parts are billed as STANDARD
    ],
)
def test_other_storage_classes_cost_more(storage_class: str, writes: int, each: float) -> None:
    """Each write of a member has the class's price; records and LISTs have that of STANDARD."""
    chosen = ObjectProperties(storage_class=storage_class)
    cost = price(USAGE, aws(memory_mb=2048).storing(chosen))
    plain = price(USAGE, aws(memory_mb=2048))
    assert cost.total - plain.total == pytest.approx(writes * (each - 0.005 / 1000))
    assert cost.unavoidable == pytest.approx(1_000_000 * each)


@pytest.mark.parametrize(
    "chosen",
    [None, ObjectProperties(), ObjectProperties(storage_class="INTELLIGENT_TIERING")],
)
def test_standard_prices_have_no_line_of_their_own(chosen: ObjectProperties | None) -> None:
    """Classes whose writes cost the same are the same bill."""
    assert price(USAGE, aws().storing(chosen)) == price(USAGE, aws())


def test_every_storage_class_has_a_price() -> None:
    """No class can be chosen that a forecast cannot price."""
    assert rates.PRICES_S3_WRITE.keys() == set(STORAGE_CLASSES)


def test_one_machine_pays_for_requests_only() -> None:
    """A local run against S3 pays S3; against another store it pays nothing."""
    latency = Latency(0.01, 0.02)
    s3 = price(USAGE, local(workers=2, put=latency, priced_requests=True))
    assert list(s3.by_service()) == ["S3"]
    free = price(USAGE, local(workers=2, put=latency))
    assert (free.lines, free.total, free.unavoidable_share) == ((), 0.0, 0.0)


def test_express_durations_are_rounded_up() -> None:
    """0.1 s stays, 0.101 s and 0.2 s are two ticks of 100 ms."""
    assert express_seconds([0.1, 0.101, 0.2]) == pytest.approx(0.5)

"""Reasons for wildcards: by action, because CDK merges statements."""

from infra.reasons import reason_for
from tests.infra.templates import Synthesized


def test_merged_actions_have_all_their_reasons() -> None:
    """Actions of two wildcards on one resource give both reasons, each once."""
    reason = reason_for(
        ["logs:CreateLogDelivery", "logs:DeleteLogDelivery", "xray:PutTraceSegments"], "*"
    )
    assert reason is not None
    assert reason.count("X-Ray's actions take no resource.") == 1
    assert reason.count("log delivery takes no resource") == 1


def test_one_action_without_a_reason_is_enough() -> None:
    """A statement has no reason if one of its actions has none."""
    assert reason_for(["xray:PutTraceSegments", "s3:GetObject"], "*") is None
    assert reason_for(["s3:GetObject"], "*") is None
    assert reason_for([], "*") is None


def test_the_templates_statements_are_merged(dev: Synthesized) -> None:
    """The tests build with the CLI's feature flags: no policy has two statements on ``*``."""
    for name in dev.resources("AWS::IAM::Policy"):
        everywhere = [one for one in dev.statements(name) if one["Resource"] == "*"]
        assert len(everywhere) <= 1, name
    merged = [one["Action"] for one in dev.statements("WorkflowRunsRole") if one["Resource"] == "*"]
    assert {action.partition(":")[0] for action in merged[0]} == {"logs", "xray"}

"""The gate on branches: what it counts, and where it fails."""

from typing import Any

from tools.branches import CONTROL_PLANE, add, count_branches, find_low, list_missing


def report(files: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """Return what coverage would write of files with branches taken and all."""
    return {
        "files": {
            name: {
                "summary": {"covered_branches": taken, "num_branches": every},
                "missing_branches": [[1, 2]] * (every - taken),
            }
            for name, (taken, every) in files.items()
        }
    }


def test_branches_are_counted_by_package() -> None:
    """Folders below a package count with it; infra is one, and modules of the root another."""
    measured = report(
        {
            "functions/s3unzip/cli/main.py": (1, 2),
            "functions/s3unzip/cli/commands/run.py": (3, 4),
            "functions/s3unzip/clients.py": (5, 6),
            "infra/stack.py": (8, 8),
        }
    )
    counts = count_branches(measured)
    assert counts == {"functions/s3unzip": (5, 6), "functions/s3unzip/cli": (4, 6), "infra": (8, 8)}
    assert add(counts) == (17, 20)
    missing = [line.split() for line in list_missing(measured)]
    assert missing[0] == ["functions/s3unzip/cli/commands/run.py", "3/4", "1->2"]
    assert len(missing) == 3


def test_limits_hold_for_the_whole_and_for_the_control_plane() -> None:
    """A package below the limit is reported, and so is a package without any measurement."""
    right = dict.fromkeys(CONTROL_PLANE, (90, 100))
    assert find_low({**right, "infra": (90, 100)}) == []
    (low,) = find_low({**right, "infra": (89, 100)})
    assert low.startswith("all product code: 89.7%")
    first, second = CONTROL_PLANE
    low, missing = find_low({second: (8, 9), "infra": (1_000, 1_000)})
    assert low.startswith(f"{first}: 0.0%")
    assert missing.startswith(f"{second}: 88.9%")

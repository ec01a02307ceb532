"""The gate on branches: what it counts, and where it fails."""

from typing import Any

from tools.branches import CONTROL_PLANE, add, count_branches, find_low, list_missing


def report(**files: tuple[int, int]) -> dict[str, Any]:
    """Return what coverage would write of files with branches taken and all."""
    return {
        "files": {
            name.replace("__", "/") + ".py": {
                "summary": {"covered_branches": taken, "num_branches": every},
                "missing_branches": [[1, 2]] * (every - taken),
            }
            for name, (taken, every) in files.items()
        }
    }


def test_branches_are_counted_by_package() -> None:
    """Folders below a package count with it; infra is one, and modules of the root another."""
    counts = count_branches(
        report(
            functions__s3unzip__cli__main=(1, 2),
            functions__s3unzip__cli__commands__run=(3, 4),
            functions__s3unzip__clients=(5, 6),
            infra__stack=(7, 8),
        )
    )
    assert counts == {"functions/s3unzip": (5, 6), "functions/s3unzip/cli": (4, 6), "infra": (7, 8)}
    assert add(counts) == (16, 20)


def test_limits_hold_for_the_whole_and_for_the_control_plane() -> None:
    """A package below the limit is reported, and so is a package without any measurement."""
    right = dict.fromkeys(CONTROL_PLANE, (90, 100))
    assert find_low({**right, "infra": (90, 100)}) == []
    (low,) = find_low({**right, "infra": (89, 100)})
    assert low.startswith("all product code: 89.8%")
    (low,) = find_low({**right, CONTROL_PLANE[1]: (8, 9), "infra": (1_000, 1_000)})
    assert low.startswith(f"{CONTROL_PLANE[1]}: 88.9%")
    (low,) = find_low({**dict.fromkeys(CONTROL_PLANE[1:], (1, 1)), "infra": (1, 1)})
    assert low.startswith(f"{CONTROL_PLANE[0]}: 0.0%")
    assert find_low({}) == ["no branch was measured"]


def test_files_without_a_gap_are_not_listed() -> None:
    """A line has the share and the branches that are missing."""
    (line,) = list_missing(report(a=(2, 2), b=(1, 2)))
    assert line.split() == ["b.py", "1/2", "1->2"]

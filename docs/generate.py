"""`python -m docs.generate [--check]`: writes docs/reference from the code.

What a page says about an option, a setting, an error or a check stands beside
it in the code and is only carried over. What the code cannot say is in
`docs.meanings`; a code or variable that is missing there stops the generator.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from docs import pages
from docs.outputs import OUTPUTS
from docs.python_api import make_api
from docs.schemas import event_schema, schema_of
from docs.sources import ROOT
from s3unzip import model

FOLDER = ROOT / "docs" / "reference"
NOTE = "<!-- Written by docs/generate.py: change the code, then run `make docs`. -->\n\n"


def make_pages() -> dict[str, str]:
    """Return the reference's files by name.

    Raises:
        LookupError: the code has a name that is described nowhere.
    """
    texts = {
        "cli.md": pages.make_cli(),
        "settings.md": pages.make_settings(),
        "errors.md": pages.make_errors(),
        "checks.md": pages.make_checks(),
        "metrics.md": pages.make_metrics(),
        "events.md": pages.make_events(),
        "api.md": make_api(),
    }
    schemas = {
        "report.schema.json": schema_of("report.json", [model.Report]),
        "outcomes.schema.json": schema_of(
            "a line of outcomes/<task>.jsonl: first the task's, then one a member",
            [model.TaskReport, model.Outcome],
        ),
        "plan.schema.json": schema_of("a line of rounds/NN.jsonl", [model.Task]),
        "summary.schema.json": schema_of("run.json", [model.PlanSummary]),
        "event.schema.json": event_schema(),
    }
    for output in OUTPUTS:
        name = f"{output.schema}.schema.json"
        title = f"a line of s3unzip {output.command} --json: {output.title}"
        schemas.setdefault(name, schema_of(title, output.kinds))
    written_pages = {name: NOTE + text for name, text in texts.items()}
    return written_pages | {
        name: json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        for name, schema in schemas.items()
    }


def write_reference(
    folder: Path, reference: Mapping[str, str], *, check: bool = False
) -> list[str]:
    """Write the files that are not what the code says; return their names.

    Args:
        folder: where they are.
        reference: what the code says, from `make_pages`.
        check: only look.
    """
    folder.mkdir(exist_ok=True)
    stale = []
    for name, text in reference.items():
        file = folder / name
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        stale.append(f"docs/reference/{name}")
        if not check:
            file.write_text(text, encoding="utf-8")
    return stale


def main() -> None:
    """Write the reference, or with ``--check`` only say what is stale."""
    parser = argparse.ArgumentParser(prog="docs.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if stale")
    chosen = parser.parse_args()
    try:
        stale = write_reference(FOLDER, make_pages(), check=chosen.check)
    except LookupError as error:
        sys.exit(str(error))
    if chosen.check and stale:
        sys.exit(f"{', '.join(stale)}: not what the code says; run `make docs` and commit")


if __name__ == "__main__":
    main()

"""Reason codes in plain words: what was found, and what the user can do.

The command line, the report page and docs/reference/checks.md take their texts from here.
`settling.next_command` chooses the command that is printed after a report.
"""

from typing import NamedTuple

from s3unzip.zip import CHECKS, Action, Phase


class Explanation(NamedTuple):
    """The explanation of a code in words."""

    sentence: str  # the finding
    advice: str  # what the user can do, with a command if there is one


NEW_COPY = "Fetch the archive again, or ask its author for an undamaged copy."

LENIENT = "If you trust the archive, --lenient lets this pass with a warning."
RAISE_LIMIT = (
    "If you trust the archive, raise the limit {}: with S3UNZIP_LIMITS on this machine, or with "
    "[limits] in an environment. See docs/reference/settings.md#limits."
)
EXTRACT_LATER = "Extract the member with a tool that supports it."
DECRYPT = "Extract it with a program that supports PKWARE's encryption, such as PKZIP."
USE_MACOS = (
    "Unpack the archive on macOS, or make it again with ZIP64: zip -r NAME.zip FOLDER in Terminal."
)
NOTHING_TO_DO = "Nothing to do: the member was extracted."

MEND_AND_RESUME = "Fix the cause, then continue: s3unzip resume RUN."

# Advice for individual checks; for the other checks, the advice depends on the phase
# (`_advice_of`).
_ADVICE = {
    "no-eocd": "Check that SRC names the ZIP archive itself and that its upload or download is "
    "complete; compare its size with the original's.",
    "trailing-data": "Fetch the archive again if something was appended to it. " + LENIENT,
    "multi-disk": "For a split archive, give the last part, NAME.zip, with NAME.z01 and all others "
    "beside it; for pieces, give the first one, NAME.zip.001. Make any other archive again from "
    "its files.",
    "offsets-unproven": USE_MACOS,
    "size-unproven": USE_MACOS,
    "part-missing": "Put all parts into one place: NAME.z01, NAME.z02, ... and NAME.zip, or "
    "NAME.zip.001, NAME.zip.002, ... For the pipeline, upload NAME.zip last; if it is there "
    "already, upload it again.",
    "part-wrong": "Check that each part has its own name and that all belong to one archive; "
    "compare their sizes with the originals.",
    "too-many-parts": RAISE_LIMIT.format("parts"),
    "too-many-entries": RAISE_LIMIT.format("members"),
    "cd-too-large": RAISE_LIMIT.format("directory_size"),
    "names-too-large": RAISE_LIMIT.format("names_size"),
    "bomb-total": RAISE_LIMIT.format("total_size"),
    "bomb-member-size": RAISE_LIMIT.format("member_size"),
    "bomb-wrapped-size": RAISE_LIMIT.format("member_size or total_size"),
    "bomb-ratio": "The member is damaged or a ZIP bomb: do not extract it. " + NEW_COPY,
    "high-ratio": NOTHING_TO_DO,
    "duplicate-name": "--exclude leaves members out, and --lenient writes the last member of each "
    "key, with a warning. If --key-template gives members the same key, use another one.",
    "file-dir-prefix-conflict": "Nothing to do for S3, which keeps both. In a folder, a member "
    "without content becomes the folder, and one with content fails (name-is-folder).",
    "case-collision": "Use a destination that distinguishes upper and lower case, such as S3.",
    "unicode-collision": "Use a destination that distinguishes Unicode forms, such as S3.",
    "name-undecodable": "Give the right encoding with --encoding, such as cp437 or shift_jis.",
    "name-guessed-backslash": "Give the encoding of the names with --encoding, such as shift_jis, "
    "gbk, big5 or cp437.",
    "name-encoding-guess": "Give the encoding with --encoding if the names look wrong.",
    "name-empty": "Rename the member in the archive. If it has no name at all, extract it with "
    "7-Zip, which names it after the archive.",
    "name-reserved": "Rename the member, or run without --marker. If the key is that of the "
    "archive, give another --prefix.",
    "key-too-long": "Shorten the key with --prefix or --key-template, or rename the member.",
    "encrypted": "Give the password with --password-file or S3UNZIP_PASSWORD, and start again with "
    "s3unzip run; in an environment, set password_secret, deploy, and put the archive again: "
    "s3unzip resume does not read these members.",
    "encrypted-directory": DECRYPT,
    "strong-encryption": DECRYPT,
    "wrong-password": "Give the right password in --password-file or S3UNZIP_PASSWORD, and try "
    "again: s3unzip resume RUN --failed. In an environment, put it into the secret first.",
    "aes-mac-mismatch": "Check the password. If it was wrong, give the right one in "
    "--password-file or S3UNZIP_PASSWORD, and try again: s3unzip resume RUN --failed. If it was "
    "right, the member is damaged. " + NEW_COPY,
    "unsupported-method": EXTRACT_LATER,
    "patch-data": EXTRACT_LATER,
    "symlink": "Links are not created. --lenient writes a text file with the path of the link's "
    "target.",
    "device": "Leave it out with --exclude.",
    "dir-with-data": LENIENT,
    "memory-bound": RAISE_LIMIT.format("decoder_memory"),
    "source-changed": "Start again to extract the new archive: s3unzip run.",
}

# Codes that do not come from checks of the archive.
NOT_FROM_CHECKS = {
    "access-denied": Explanation(
        "A permission is missing, or a KMS key cannot be used.", MEND_AND_RESUME
    ),
    "execution-failed": Explanation(
        "The execution of the run failed or timed out.", MEND_AND_RESUME
    ),
    "exists": Explanation(
        "The key exists with other content, and --on-conflict is never.",
        "Choose another --prefix. To replace the other content, run again with --on-conflict "
        "overwrite.",
    ),
    "link-refused": Explanation(
        "The web server does not return the archive for this link.",
        "Get a new link, and use it to extract what is left: s3unzip run NEW-URL DEST "
        "--on-conflict skip-unchanged.",
    ),
    "not-readable": Explanation("The archive exists, but cannot be read.", MEND_AND_RESUME),
    "not-implemented": Explanation(
        "The store does not implement this request.",
        "Start a new run without the option that the message names, or with another store if it "
        "names none. Resuming does not help, because a run keeps its options.",
    ),
    "name-is-folder": Explanation(
        "The member has the same name as a folder that contains other members, and a file system "
        "cannot hold both.",
        "Write to S3, which keeps both, or leave one of them out with --exclude.",
    ),
    "name-refused": Explanation(
        "The file system does not accept the name.",
        "Write to S3 or to another file system, or leave the member out with --exclude.",
    ),
    "nested-budget": Explanation(
        "The nested archives exceed the budget of --nested.",
        "Extract the nested archive by itself with s3unzip run, or raise nested_archives, "
        "nested_members or nested_bytes with S3UNZIP_TUNING.",
    ),
    "nested-changed": Explanation(
        "The nested archive is not the object that was extracted.", "Run the outer archive again."
    ),
    "nested-no-stem": Explanation(
        "Without .zip, the nested archive's name is empty, so its members would have no prefix.",
        "Extract the nested archive by itself with s3unzip run.",
    ),
    "nested-prefix-taken": Explanation(
        "Another nested archive, or a member of the outer archive, uses the same prefix.",
        "Extract the nested archive by itself with s3unzip run and another --prefix.",
    ),
    "not-begun": Explanation(
        "The run of the nested archive could not be started.",
        "Fix the cause, then resume the run of the archive that contains it: s3unzip resume RUN.",
    ),
    "not-found": Explanation(
        "A bucket does not exist, or the records of the run are gone.", MEND_AND_RESUME
    ),
    "object-too-large": Explanation(
        "The member is larger than the largest object that the store accepts.",
        "Extract it into a folder or into a store with a higher limit.",
    ),
    "record-unreadable": Explanation(
        "A record of the run is damaged, lost or of another version.",
        "Start the run again: s3unzip resume RUN. If a run on one machine has no run.json: s3unzip "
        "run with the same archive and destination.",
    ),
    "service-fault": Explanation("A store does not answer.", MEND_AND_RESUME),
    "slice-refused": Explanation(
        "A slice of a split member was refused, so the member is streamed whole.", NOTHING_TO_DO
    ),
    "stopped": Explanation("The run was stopped.", "Continue the run: s3unzip resume RUN."),
    "storage": Explanation("The destination refuses every object.", MEND_AND_RESUME),
    "store-full": Explanation(
        "No space is left at the destination.",
        "Make room at the destination, then continue: s3unzip resume RUN.",
    ),
    "store-refused": Explanation(
        "The store refused this member.",
        "Fix the cause, then try the failed members again: s3unzip resume RUN --failed.",
    ),
    "tasks-failed": Explanation(
        "Some tasks were not completed, so some members have no outcome.",
        "Continue the run: s3unzip resume RUN.",
    ),
}


def explain(code: str) -> Explanation:
    """Return the explanation of a code; for a code from another version, return a general one."""
    if code in NOT_FROM_CHECKS:
        return NOT_FROM_CHECKS[code]
    if code not in CHECKS:
        return Explanation(f"{code}.", "See docs/reference/checks.md.")
    return Explanation(CHECKS[code].sentence, _advice_of(code))


def advise(code: str, run: str, env_options: str = "") -> str:
    """Return the advice about a code; in its commands, the run's id replaces the word RUN.

    Args:
        code: the code of a check or a fault.
        run: the id of the run.
        env_options: the options that select the run's environment, with a leading space; empty for
            a run on this machine.
    """
    return explain(code).advice.replace(" RUN", f" {run}{env_options}")


def describe(code: str, message: str | None) -> str:
    """Return a finding in words: the sentence for its code, then the details in `message`.

    If the code is not from a check, the message is complete and replaces the sentence.
    """
    sentence = explain(code).sentence
    if not message or message == sentence:
        return sentence
    if code in NOT_FROM_CHECKS:
        return message
    return f"{sentence.removesuffix('.')}: {message}"


def _advice_of(code: str) -> str:
    """Return the advice for a check: its entry in `_ADVICE` or, if there is none, general advice.

    A warning requires no action. For other findings, the general advice depends on the phase.
    """
    if code in _ADVICE:
        return _ADVICE[code]
    check = CHECKS[code]
    if check.default is Action.WARN:
        return NOTHING_TO_DO
    advice = {
        Phase.KEY: "Rename the member in the archive, then extract the archive again.",
        Phase.INDEX: "Make the archive again from its files; programs may read this one in "
        "different ways.",
    }.get(check.phase, NEW_COPY)
    if check.is_policy:
        return f"{advice} {LENIENT}"
    return advice

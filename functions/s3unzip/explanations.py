"""Reason codes in plain words: what was found, and what the user can do.

The command line, the report page and docs/reference/checks.md take their texts from here.
`settling.next_command` chooses the command that is printed after a report.
"""

from s3unzip.zip import CHECKS, Action, Phase

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

# The sentences for the codes that do not come from checks of the archive.
NOT_FROM_CHECKS = {
    "access-denied": "A permission is missing, or a KMS key cannot be used.",
    "execution-failed": "The execution of the run failed or timed out.",
    "exists": "The key exists with other content, and the run has --on-conflict never.",
    "link-refused": "The web server does not return the archive for this link.",
    "not-readable": "The archive exists, but cannot be read.",
    "not-implemented": "The store or web server does not support this request.",
    "name-is-folder": "The member has the same name as a folder that contains other members, and "
    "a file system cannot hold both.",
    "name-refused": "The file system does not accept the name.",
    "nested-budget": "The nested archives exceed the budget of --nested.",
    "nested-changed": "The nested archive was replaced or deleted after it was extracted.",
    "nested-no-stem": "Without .zip, the nested archive's name is empty, so its members would "
    "have no prefix.",
    "nested-prefix-taken": "Another nested archive, or a member of the outer archive, uses the "
    "same prefix.",
    "not-begun": "The run of the nested archive could not be started.",
    "not-found": "A bucket does not exist, or the records of the run are gone.",
    "object-too-large": "The member is larger than the largest object that the store accepts.",
    "record-unreadable": "A record of the run is damaged, lost or from another version.",
    "service-fault": "A store does not answer.",
    "slice-refused": "A slice of a split member was refused, so the member is streamed whole.",
    "stopped": "The run was stopped.",
    "storage": "The destination refuses every object, or the archive cannot be read.",
    "store-full": "No space is left at the destination.",
    "store-refused": "The store refused this member.",
    "tasks-failed": "Some tasks were not completed, so some members have no outcome.",
}

# Advice by code. For the checks without an entry, the advice depends on the phase (`_advice_of`).
_ADVICE = {
    "no-eocd": "Check that SRC names the ZIP archive itself and that its upload or download is "
    "complete; compare its size with the original's.",
    "trailing-data": "Fetch the archive again if something was appended to it. " + LENIENT,
    "multi-disk": "If the archive has parts named NAME.z01, NAME.z02, ..., put all parts into "
    "one place, and give the last part, NAME.zip. If the parts are named NAME.zip.001, ..., give "
    "the first part. Otherwise, make the archive again from its files.",
    "offsets-unproven": USE_MACOS,
    "size-unproven": USE_MACOS,
    "part-missing": "Put all parts into one place: NAME.z01, NAME.z02, ... and NAME.zip, or "
    "NAME.zip.001, NAME.zip.002, ... For the pipeline, upload NAME.zip last. If "
    "NAME.zip is already uploaded, upload it again.",
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
    "file-dir-prefix-conflict": "Nothing to do for S3, which keeps the member and the folder. In a "
    "folder on disk, a member without content becomes the folder, and a member with content fails "
    "(name-is-folder).",
    "case-collision": "Use a destination that distinguishes upper and lower case, such as S3.",
    "unicode-collision": "Use a destination that distinguishes Unicode forms, such as S3.",
    "name-undecodable": "Give the right encoding with --encoding, such as cp437 or shift_jis.",
    "name-guessed-backslash": "Give the encoding of the names with --encoding, such as shift_jis, "
    "gbk, big5 or cp437.",
    "name-encoding-guess": "Give the encoding with --encoding if the names look wrong.",
    "name-empty": "Rename the member in the archive. If the member has no name at all, extract the "
    "archive with 7-Zip, which names this member after the archive.",
    "name-reserved": "Rename the member, or run without --marker. If the key is that of the "
    "archive, give another --prefix.",
    "key-too-long": "Shorten the key with --prefix or --key-template, or rename the member.",
    "encrypted": "Give the password with --password-file or S3UNZIP_PASSWORD, and start again with "
    "s3unzip run; in an environment, set password_secret, deploy, and put the archive again. "
    "s3unzip resume does not read encrypted members.",
    "encrypted-directory": DECRYPT,
    "strong-encryption": DECRYPT,
    "wrong-password": "Give the right password in --password-file or S3UNZIP_PASSWORD, and try "
    "again: s3unzip resume RUN --failed. In an environment, first put the password into the "
    "secret.",
    "aes-mac-mismatch": "Check the password. If the password was wrong, give the right one in "
    "--password-file or S3UNZIP_PASSWORD, and try again: s3unzip resume RUN --failed. If the "
    "password was right, the member is damaged. " + NEW_COPY,
    "unsupported-method": EXTRACT_LATER,
    "patch-data": EXTRACT_LATER,
    "symlink": "Links are not created. --lenient writes a text file with the path of the link's "
    "target.",
    "device": "Leave the member out with --exclude.",
    "dir-with-data": LENIENT,
    "memory-bound": RAISE_LIMIT.format("decoder_memory"),
    "source-changed": "Start again to extract the new archive: s3unzip run.",
    # Advice for the codes in `NOT_FROM_CHECKS`.
    "access-denied": MEND_AND_RESUME,
    "execution-failed": MEND_AND_RESUME,
    "exists": "Choose another --prefix. To replace the other content, run again with --on-conflict "
    "overwrite.",
    "link-refused": "Get a new link, and use it to extract what is left: s3unzip run NEW-URL DEST "
    "--on-conflict skip-unchanged.",
    "not-readable": MEND_AND_RESUME,
    "not-implemented": "Start a new run without the option that the message names. If the message "
    "asks for a download of the archive, start a new run with the downloaded file. Otherwise, use "
    "another store. Resuming does not help, because a run keeps its archive and its options.",
    "name-is-folder": "Write to S3, which keeps the member and the folder, or leave the member "
    "out with --exclude.",
    "name-refused": "Write to S3 or to another file system, or leave the member out with "
    "--exclude.",
    "nested-budget": "Extract the nested archive by itself with s3unzip run, or raise "
    "nested_archives, nested_members or nested_bytes with S3UNZIP_TUNING.",
    "nested-changed": "Run the outer archive again.",
    "nested-no-stem": "Extract the nested archive by itself with s3unzip run.",
    "nested-prefix-taken": "Extract the nested archive by itself with s3unzip run and another "
    "--prefix.",
    "not-begun": "Fix the cause, then resume the run of the outer archive: s3unzip resume RUN.",
    "not-found": MEND_AND_RESUME,
    "object-too-large": "Extract the member into a folder or into a store with a higher limit.",
    "record-unreadable": "Start the run again: s3unzip resume RUN. If a run on one machine has no "
    "run.json, use s3unzip run with the same archive and destination.",
    "service-fault": MEND_AND_RESUME,
    "slice-refused": NOTHING_TO_DO,
    "stopped": "Continue the run: s3unzip resume RUN.",
    "storage": MEND_AND_RESUME,
    "store-full": "Make room at the destination, then continue: s3unzip resume RUN.",
    "store-refused": "Fix the cause, then try the failed members again: s3unzip resume RUN "
    "--failed.",
    "tasks-failed": "Continue the run: s3unzip resume RUN.",
}


def explain(code: str) -> str:
    """Return the sentence for a code; for a code from another version, the code itself."""
    if code in CHECKS:
        return CHECKS[code].sentence
    return NOT_FROM_CHECKS.get(code, f"{code}.")


def advise(code: str, run: str = "RUN", env_options: str = "") -> str:
    """Return what the user can do, with a command if there is one.

    Args:
        code: the code of a check or a fault.
        run: the id of the run, which replaces the word RUN in commands.
        env_options: the options that select the run's environment, with a leading space; empty for
            a run on this machine.
    """
    return _advice_of(code).replace(" RUN", f" {run}{env_options}")


def describe(code: str, message: str | None) -> str:
    """Return a finding in words: the sentence for its code, then the details in `message`.

    If the code is not from a check, the message is complete and replaces the sentence.
    """
    sentence = explain(code)
    if not message or message == sentence:
        return sentence
    if code in NOT_FROM_CHECKS:
        return message
    return f"{sentence.removesuffix('.')}: {message}"


def _advice_of(code: str) -> str:
    """Return the entry of a code in `_ADVICE` or, if there is none, general advice.

    A warning requires no action. For other findings, the general advice depends on the phase.
    """
    if code in _ADVICE:
        return _ADVICE[code]
    if code not in CHECKS:  # a code from another version
        return "See docs/reference/checks.md."
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

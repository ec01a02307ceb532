"""Checks for options that contradict each other, or do not fit the source or destination of a run.

An option has one name on the command line and another name in an environment's file. A `Naming`
returns the name that the user wrote.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from s3unzip.errors import UsageError
from s3unzip.model import AfterSuccess, GzipForm, Location, Options, SourceAction
from s3unzip.object_properties import ARCHIVED_CLASSES
from s3unzip.options import read_options
from s3unzip.printable import choose_form

Naming = Callable[[str], str]  # takes the field of an option, and returns its name for a message
# The options that leave members out.
SELECTING = ("include", "exclude", "names", "limit", "strip_components")


def name_typed(field: str) -> str:
    """Return an option's name on the command line; if it has none, the name of its field."""
    return {row.field: row.word for row in read_options(Options)}.get(field) or field


def check_options(
    options: Options, destination: Location | None = None, naming: Naming = name_typed
) -> None:
    """Refuse options that contradict each other, or that a folder does not support.

    Args:
        options: the options of a run.
        destination: the destination of the run; None if it is not known yet.
        naming: returns the name of an option for the message.

    Raises:
        UsageError: the options are refused; the message describes the first reason.
    """
    is_folder = destination is not None and not destination.store.keeps_properties
    as_gzip = naming("as_gzip")
    if options.trust_crc and options.as_gzip is None:
        raise UsageError(
            f"{naming('trust_crc')}: needs {as_gzip}, because inflated members are always checked"
        )
    if options.nested_depth and options.as_gzip is not None:
        raise UsageError(
            f"{naming('nested_depth')}: an archive that is kept as gzip cannot be read; drop "
            f"{as_gzip}"
        )
    if options.as_gzip is GzipForm.ENCODING and is_folder:
        raise UsageError(
            f"{as_gzip} encoding: a folder cannot store a Content-Encoding; use {as_gzip} suffix"
        )
    properties = options.objects
    if properties is None:
        return
    if is_folder:
        raise UsageError(
            f"{destination}: a folder keeps no storage class, ACL, tags, metadata, cache control "
            "or content types; leave these options out, or write to s3://"
        )
    properties.check()
    if options.nested_depth and properties.storage_class in ARCHIVED_CLASSES:
        raise UsageError(
            f"{naming('nested_depth')}: archives inside are read from the destination, and "
            f"{properties.storage_class} must be restored before it can be read; use another "
            "storage class, GLACIER_IR perhaps"
        )


def check_after_success(
    rule: AfterSuccess, options: Options, rule_name: str, naming: Naming = name_typed
) -> None:
    """Refuse to delete an archive if only some of its members are extracted."""
    selecting = _join_changed_options(options, SELECTING, naming)
    if rule.action is SourceAction.DELETE and selecting:
        raise UsageError(
            f"{rule_name} delete: leave out {selecting}, because members that are not extracted "
            "would be lost"
        )


def check_delete_extra(options: Options, option: str, naming: Naming = name_typed) -> None:
    """Refuse `option` if it would delete members of the archive from the destination.

    The option deletes all objects that the run does not write. The run writes only selected
    members, and no members of nested archives.
    """
    # `strip_components` is allowed: the members that it leaves out have no keys to delete.
    selecting = _join_changed_options(
        options, [field for field in SELECTING if field != "strip_components"], naming
    )
    if selecting:
        raise UsageError(
            f"{option}: leave out {selecting}, because members that are not selected would be "
            "deleted"
        )
    if options.nested_depth:
        raise UsageError(
            f"{option}: leave out {naming('nested_depth')}, because members of archives inside "
            "would be deleted"
        )


def _join_changed_options(options: Options, fields: Sequence[str], naming: Naming) -> str:
    """Return the names of the options that differ from their defaults, joined by "and"."""
    defaults = Options()
    return " and ".join(
        naming(field) for field in fields if getattr(options, field) != getattr(defaults, field)
    )


def check_access(
    access: Struct,
    source: Location | None = None,
    destination: Location | None = None,
    *,
    after_success: str | None = None,
) -> None:
    """Refuse S3 options that contradict each other, or that are given for a store other than S3.

    Args:
        access: a `StoreConfig`, which this module cannot import.
        source: the archive; None if it is not known yet.
        destination: the destination; None if there is none, or if it is not known yet.
        after_success: the action on the archive after its run; None if there is no action.
    """
    # The name of each option on the command line, keyed by field.
    words = {option.field: option.word for option in read_options(type(access))}
    set_fields = [field for field in words if getattr(access, field)]
    source_fields = {"unsigned", "request_payer"}
    source_words = f"{words['unsigned']} and {words['request_payer']}"
    if source_fields.issubset(set_fields):
        raise UsageError(f"{source_words}: give one of them, because S3 must know who pays")
    if after_success and "unsigned" in set_fields:
        raise UsageError(
            f"--after-success: with {words['unsigned']} the archive is reached without "
            "credentials, so it cannot be changed; leave out one of them"
        )
    if (
        source_fields.intersection(set_fields)
        and source is not None
        and not source.store.takes_s3_options
    ):
        raise UsageError(f"{source}: {source_words} are for S3")
    destination_words = [words[field] for field in set_fields if field.startswith("destination_")]
    if destination_words and destination is not None and not destination.store.takes_s3_options:
        verb = choose_form(len(destination_words), "is", "are")
        raise UsageError(f"{destination}: {' and '.join(destination_words)} {verb} for S3")

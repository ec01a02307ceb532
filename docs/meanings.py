"""What the code does not say by itself: the words for codes, fields and exit codes.

The reference takes a comment beside the code first; these stand where there is none.
"""

HOST_VARIABLES = {
    "FORCE_COLOR": "Not empty: colours also where output is no terminal.",
    "NO_COLOR": "Not empty: no colours (https://no-color.org).",
    "S3UNZIP_LOG_LEVEL": "`error`, `warning`, `info` or `debug`: log from this level on.",
    "S3UNZIP_PASSWORD": "Password of encrypted members, where no option gives one.",
    "AWS_PROFILE": "Profile of `~/.aws`; the same as `--profile`.",
    "AWS_ENDPOINT_URL": "URL of an S3-compatible server; the same as `--endpoint-url`.",
    "AWS_ENDPOINT_URL_S3": "The same, for S3 alone; it wins over `AWS_ENDPOINT_URL`.",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "`true`: no variable or profile sets an endpoint.",
    "REQUESTS_CA_BUNDLE": "File of certificates to trust for S3 and AWS, without `AWS_CA_BUNDLE`.",
    "S3UNZIP_LIMITS": 'JSON object of limits of archives, such as `{"members": 20000000}`.',
    "S3UNZIP_TUNING": 'JSON object of tuning settings, such as `{"part_bytes": 33554432}`.',
    "S3UNZIP_DEBUG": "Not empty: an internal error prints its traceback.",
    "S3UNZIP_HOME": "Folder that runs of this machine are kept in.",
    "XDG_STATE_HOME": "Without `S3UNZIP_HOME`: runs are kept in `s3unzip` below it. "
    "Without both: `~/.local/state/s3unzip`.",
}
EXIT_CODES = {
    0: "all is well",
    1: "some members failed; of `verify`: a difference was found; of `run --delete-extra`: what is "
    "extra stays",
    2: "the request is wrong; nothing was done",
    3: "the archive was rejected; nothing was written",
    4: "the archive changed while it was read",
    5: "a service failed, or work is left: resume",
    6: "a store refused",
    7: "no member is selected, or no member has a requested name; nothing was written",
    70: "a bug of s3unzip, please report it",
    74: "standard output cannot be written; a run has done its work",
    129: "stopped by SIGHUP",
    130: "stopped by Ctrl-C",
    143: "stopped by SIGTERM",
}
EVENT_FIELDS = {
    "run": "The run's id; with it every object of the run is found.",
    "environment": "Name of the environment.",
    "verdict": "How the run ended.",
    "reason": "Code of what ended the whole run; null where the verdict is about members.",
    "message": "The same in words, at most 1,000 characters.",
    "source": "The archive.",
    "route": "Name of the environment's route that took it; null where none did.",
    "version_id": "Its version; null in a bucket without versions, or where it was never read.",
    "destination": "The prefix that members were written below.",
    "report": "Where `report.json` is, and `report.html` unless a direct run is `COMPLETED`.",
    "members": "Entries of the archive's directory.",
    "extracted": "Members written.",
    "unchanged": "Members that the destination had already.",
    "failed": "Members that were not written, each with its reason in the report.",
    "missing": "Members without an outcome: their task was not completed.",
    "bytes_in": "Bytes read from the archive.",
    "bytes_out": "Bytes written.",
    "seconds": "From the archive's arrival to the report.",
}

# Fields whose names say it to who reads the code, and not to who reads the reference.
MEANINGS = {
    "AfterSuccessSection.tags": "of a tag: added to the archive's tags",
    "AlarmsSection.also": "more alarms: AbortedRuns, RejectedArchives, SourcesNotFinished",
    "AlarmsSection.archive_p95_seconds": "alarm when one archive in twenty takes longer for "
    "each 10 GB or 100,000 members, or for all of a smaller one",
    "AlarmsSection.email": "told of every alarm; SNS asks for a confirmation first",
    "RouteDestinationSection.existing": "name of a bucket; without it that of `[destination]`",
    "RouteDestinationSection.prefix": "of the members' keys; unset: that of `[destination]`",
    "AlarmsSection.topic": "of SNS: every alarm is sent there, too",
    "BucketSection.existing": "name of a bucket of yours; without it one is created",
    "BucketSection.prefix": "only keys that begin so; empty, or ending in a slash",
    "Environment.event_bus": "name of the EventBridge bus that runs are announced on",
    "Environment.tuning": "the table `[tuning]`, see [below](#tuning)",
    "FunctionSection.memory": "MB; a vCPU is 1,769",
    "FunctionSection.reserved_concurrency": "concurrent executions kept for this function",
    "FunctionSection.timeout": "seconds",
    "IngestSection.suffix": "only keys that end so start runs",
    "IntakeSection.attempts": "tries of an event, before it is a dead letter",
    "IntakeSection.concurrency": "invocations of intake at once; unset: its reservation, or 100",
    "Limits.decoder_memory": "that one stream's header may ask for",
    "Limits.directory_size": "of the central directory",
    "Limits.folder_memory": "for comparing keys with folders, and directories with each other",
    "Limits.key_bytes": "of one key, its prefix included",
    "Limits.member_size": "declared, of one member",
    "Limits.members": "in the central directory",
    "Limits.names_size": "of all names that are kept, in UTF-8",
    "Limits.parts": "files of a split archive",
    "Limits.ratio": "uncompressed to compressed, of one deflated member",
    "Limits.total_size": "declared, of all members",
    "LogsSection.days": "until log events expire",
    "LogsSection.level": "of the functions' logs",
    "NetworkSection.security_groups": "ids of the security groups of the functions",
    "NetworkSection.subnets": "ids of the subnets of the functions",
    "ObjectPropertiesSection.acl": "a canned one; the roles then have s3:PutObjectAcl",
    "ObjectPropertiesSection.tags": "the roles then have s3:PutObjectTagging",
    "OptionsSection.as_gzip": "keep members compressed: see [gzip](../howto/objects.md)",
    "Options.encoding": "of names that are neither ASCII nor marked as UTF-8",
    "Options.exclude": "globs of members to leave out",
    "Options.include": "globs of members to extract; none: all",
    "Options.key_template": ("how keys are made: see [filters and keys](../howto/select.md)"),
    "Options.lenient": "turn the [checks](checks.md) that are policy into warnings",
    "OptionsSection.marker": "write `_SUCCESS` last, if the run is `COMPLETED`",
    "Options.on_conflict": "`overwrite`, `skip-unchanged` or `never`",
    "OptionsSection.nested_depth": "levels of archives inside archives",
    "OptionsSection.on_conflict": "what to do where the destination has the key",
    "RunsSection.max_cost": "dollars; above it the run is refused",
    "StackSection.name": "of the CloudFormation stack",
    "StackSection.region": "unset: the region of the credentials",
    "StackSection.tags": "of every resource",
    "Tuning.max_workers": "concurrent tasks of one run; of an environment: `runs.max_workers`",
    "Tuning.batch_members": "members of one batch",
    "Tuning.copy_part_bytes": "of one UploadPartCopy",
    "Tuning.nested_archives": "how many",
    "Tuning.nested_bytes": "written for them",
    "Tuning.nested_members": "in all their directories",
    "Tuning.parts_in_flight": "of one multipart upload",
    "Tuning.puts_in_flight": "of one worker",
    "WorkSection.expire_days": "until plans, outcomes and reports are deleted",
}

# Paragraphs of the pages.
TEXTS = {
    "cli": """\
`As run:` names options that a command shares with `run`, where they are described.
""",
    "variables": """\
Credentials and regions are found as boto3 finds them: `AWS_PROFILE`, `AWS_REGION`,
`~/.aws/config` and the rest. Besides:
""",
    "settings": """\
An environment of the cloud stack is a file, `infra/environments/NAME.toml`. On one machine the
options of the [command line](cli.md), `S3UNZIP_TUNING` and `S3UNZIP_LIMITS` take its place. Sizes
are bytes and times are seconds unless the text says otherwise. An unknown or wrong setting stops
the synthesis with one line that names it.
""",
    "tuning": """\
Set in `[tuning]` of the file; on one machine as a JSON object in the variable `S3UNZIP_TUNING`.
""",
    "limits": """\
Set in `[limits]` of the file; on one machine as a JSON object in the variable `S3UNZIP_LIMITS`.
""",
    "options": """\
`[options]` of the file and the command line set them; `report.json` repeats them.
""",
    "errors": """\
A run that was planned ends with a verdict. What cannot be planned, or was asked wrongly, ends with
an error: one line on stderr.
""",
    "mistakes": """\
Each of these was made on purpose, and a test makes it again: what was typed, the exit code and the
line that tells it. Lines about archives are followed by one that begins with `help:`.
""",
    "names": """\
The names are public: Lambda reports them as `errorType`, and the state machine retries by them.
""",
    "checks": """\
Every reason and warning code that a report can hold. An archive that is rejected has no member
written. A member that fails is listed with its code, what was found and the byte offset in the
archive; the others go on. A warning is counted. `--lenient` softens the codes with an entry in its
column and no others. Several codes can belong to one numbered check. The command line and the
report page say the same words.

Two limits of the decoders: incomplete deflate codes, which zlib refuses, pass if size and CRC-32
are right; a Deflate64 block without distance codes (RFC 1951, 3.2.7) fails as `corrupt-stream`.
""",
    "metrics": """\
Namespace `s3unzip`; dimensions `service` and `environment`. The functions write the metrics into
their logs (embedded metric format). The same lines name the run, if there is one, and at
its end the archive. The [dashboard](../howto/dashboard.md) draws each of them.
""",
    "events": """\
An archive starts a run when S3 announces `Object Created` through EventBridge. With `ingest.scan`
it starts when GuardDuty announces that the scan found no threat. The archive's key begins with
`ingest.prefix` and ends with `ingest.suffix`, or has prefix and suffix of a
[route](../howto/routes.md). A suffix fits as it is written, in lower case, in upper case or
capitalised (`.zip`, `.ZIP`, `.Zip`, but not `.zIp`). An event may come twice; the archive is
extracted once. The queue also takes S3's own notifications (`Records`) of created objects. S3's
other events start nothing.
""",
}

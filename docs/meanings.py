"""What the code does not say by itself: the words for codes, fields and exit codes.

The reference takes the comment beside the code, unless there is none or these say it better.
"""

HOST_VARIABLES = {
    "FORCE_COLOR": "If not empty: print colours even if the output is not a terminal.",
    "NO_COLOR": "If not empty: print no colours (https://no-color.org).",
    "S3UNZIP_LOG_LEVEL": "Minimum level of log lines: `error`, `warning`, `info` or `debug`.",
    "S3UNZIP_PASSWORD": "Password of encrypted members, if no option gives one.",
    "AWS_PROFILE": "Profile of `~/.aws`; the same as `--profile`.",
    "AWS_ENDPOINT_URL": "URL of an S3-compatible server; the same as `--endpoint-url`.",
    "AWS_ENDPOINT_URL_S3": "URL of a server for S3 requests only; overrides `AWS_ENDPOINT_URL`.",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "`true`: ignore the endpoints of variables and "
    "profiles.",
    "REQUESTS_CA_BUNDLE": "File of certificates to trust for S3 and AWS, if `AWS_CA_BUNDLE` is "
    "not set.",
    "S3UNZIP_LIMITS": 'JSON object with limits of archives, such as `{"members": 20000000}`.',
    "S3UNZIP_TUNING": 'JSON object with tuning settings, such as `{"part_bytes": 33554432}`.',
    "S3UNZIP_DEBUG": "If not empty: print the traceback of an internal error.",
    "S3UNZIP_HOME": "Folder with the records of runs on this machine.",
    "XDG_STATE_HOME": "Folder whose subfolder `s3unzip` has the records of runs, if "
    "`S3UNZIP_HOME` is not set. If neither is set: `~/.local/state/s3unzip`. For a user without a "
    "home folder, `~` is `/`.",
}
EXIT_CODES = {
    0: "all is well",
    1: "some members failed; `verify` found a difference; `run --delete-extra` left extra objects",
    2: "the request is wrong; nothing was done",
    3: "the archive was rejected; nothing was written",
    4: "the archive changed while it was read",
    5: "a service failed, or work is left; resume the run",
    6: "a store refused a request, or something named does not exist",
    7: "no member is selected, or no member has a requested name; nothing was written",
    70: "a bug in s3unzip; please report it",
    74: "standard output cannot be written; a run has finished its work",
    129: "stopped by SIGHUP",
    130: "stopped by Ctrl-C",
    143: "stopped by SIGTERM",
}
EVENT_FIELDS = {
    "run": "Id of the run; it is in the key of every record of the run.",
    "environment": "Name of the environment.",
    "verdict": "How the run ended.",
    "reason": "Code of the cause that ended the whole run; null if the verdict is about members.",
    "message": "The cause in words, at most 1,000 characters.",
    "source": "Location of the archive.",
    "route": "Name of the route that took the archive; null if no route did.",
    "version_id": "Version id of the archive; null without versioning, or if it was never read.",
    "destination": "Location below which members were written.",
    "report": "Location of `report.json`. `report.html` is beside it, unless a direct run is "
    "`COMPLETED`.",
    "members": "Number of entries in the archive's directory.",
    "extracted": "Number of members that were written.",
    "unchanged": "Number of members that the destination already had.",
    "failed": "Number of members that were not written; the report has the reasons.",
    "missing": "Number of members without an outcome, because their task was not completed.",
    "bytes_in": "Number of bytes read from the archive.",
    "bytes_out": "Number of bytes written.",
    "seconds": "Seconds from the archive's arrival to the report.",
}

# Fields whose names explain themselves in the code, but not in the reference.
MEANINGS = {
    "AfterSuccessSection.action": "what to do with the archive; a lifecycle rule can move by tag",
    "AfterSuccessSection.tags": "with the action `tag`: tags that are added to the archive's tags",
    "AlarmsSection.also": "additional alarms: AbortedRuns, RejectedArchives, SourcesNotFinished",
    "AlarmsSection.archive_p95_seconds": "alarm if one archive in twenty takes longer than "
    "this for each 10 GB or 100,000 members; a smaller archive counts as one such unit",
    "AlarmsSection.email": "address that gets every alarm; SNS first asks for a confirmation",
    "RouteDestinationSection.existing": "name of an existing bucket; unset: the bucket of "
    "`[destination]`",
    "RouteDestinationSection.prefix": "beginning of the members' keys; unset: that of "
    "`[destination]`",
    "AlarmsSection.topic": "ARN of an SNS topic that gets every alarm",
    "BucketSection.existing": "name of a bucket of yours; unset: the stack creates a bucket",
    "BucketSection.prefix": "beginning of all keys; empty, or ends in a slash",
    "DestinationSection.prefix": "beginning of the members' keys; empty, or ends in a slash",
    "WorkSection.prefix": "beginning of the keys of all records; empty, or ends in a slash",
    "StackSection.qualifier": "qualifier of CDK's bootstrap",
    "StackSection.permissions_boundary": "ARN of the boundary of every role that the stack creates",
    "RunsSection.workers": "number of workers of all runs together, if extract reserves none",
    "RunsSection.max_workers": "maximum number of workers of one run; unset: half of all",
    "AlarmsSection.waiting_seconds": "alarm if an archive waits longer than this in the queue",
    "AlarmsSection.throttles": "alarm if S3 sends more 503 responses than this in each 5 minutes "
    "of an hour",
    "RouteSection.name": "name of the route, which reports and lists of runs show",
    "RouteSection.prefix": "beginning of the keys of its archives; `ingest.prefix` is not added "
    "to it",
    "RouteSection.suffix": "end of the keys of its archives",
    "RouteSection.password_secret": "ARN of the secret for encrypted members; unset: that of the "
    "environment",
    "RouteSection.password_kms_key": "ARN of the key of this secret",
    "Environment.kms_key": "ARN of the key for created buckets and for members; unset: SSE-S3",
    "Environment.password_secret": "ARN of the secret with the password of encrypted members; "
    "`ARN#field` for a field of a JSON secret",
    "Environment.password_kms_key": "ARN of the key of this secret, if it is not "
    "`aws/secretsmanager`",
    "IntakeSection.batch": "maximum number of events in one invocation",
    "IngestSection.prefix": "only keys that begin with it start runs; empty, or ends in a slash",
    "Environment.event_bus": "name of the EventBridge bus that gets an event at the end of "
    "each run",
    "Environment.tuning": "the table `[tuning]`, see [below](#tuning)",
    "FunctionSection.memory": "memory in MB; 1,769 MB give one vCPU",
    "FunctionSection.reserved_concurrency": "concurrent executions that are reserved for this "
    "function, which are also its maximum; 0: it shares what no function reserves",
    "FunctionSection.timeout": "time limit of one invocation",
    "IngestSection.suffix": "only keys that end with it start runs",
    "IntakeSection.attempts": "attempts at an event before it is a dead letter",
    "IntakeSection.concurrency": "concurrent invocations of intake; unset: its reservation, or 100",
    "Limits.decoder_memory": "maximum memory that the header of one stream can request",
    "Limits.directory_size": "maximum size of the central directory",
    "Limits.folder_memory": "memory for comparing keys with folders, and directories with each "
    "other",
    "Limits.key_bytes": "maximum length of one key, including its prefix",
    "Limits.member_size": "maximum declared size of one member",
    "Limits.members": "maximum number of members in the central directory",
    "Limits.names_size": "maximum total length of all names that are kept, in UTF-8",
    "Limits.parts": "maximum number of files of a split archive",
    "Limits.ratio": "maximum ratio of declared to compressed size of one deflated member",
    "Limits.total_size": "maximum declared size of all members together",
    "LogsSection.days": "days after which log events are deleted",
    "LogsSection.level": "minimum level of the functions' log lines",
    "NetworkSection.security_groups": "ids of the functions' security groups",
    "NetworkSection.subnets": "ids of the functions' subnets",
    "ObjectPropertiesSection.acl": "canned ACL of every object; the roles then have "
    "s3:PutObjectAcl",
    "ObjectPropertiesSection.storage_class": "storage class of every object; unset: STANDARD",
    "ObjectPropertiesSection.tags": "tags of every object; the roles then have s3:PutObjectTagging",
    "OptionsSection.as_gzip": "keep members compressed: see [gzip](../howto/objects.md)",
    "Options.encoding": "encoding of names that are neither ASCII nor marked as UTF-8",
    "Options.exclude": "globs of members to leave out",
    "Options.include": "globs of members to extract; none: all members",
    "Options.key_template": "pattern of the keys: see [filters and keys](../howto/select.md)",
    "Options.lenient": "turn the [checks](checks.md) that are policy into warnings",
    "OptionsSection.marker": "write `_SUCCESS` last, if the run is `COMPLETED`",
    "Options.on_conflict": "`overwrite`, `skip-unchanged` or `never`",
    "OptionsSection.nested_depth": "maximum depth of archives inside archives to extract",
    "OptionsSection.on_conflict": "what to do if the destination already has the key",
    "RunsSection.max_cost": "maximum estimate for a run in dollars; above it the run is refused",
    "StackSection.name": "name of the CloudFormation stack",
    "StackSection.region": "region of the stack; unset: the region of the credentials",
    "StackSection.tags": "tags of the stack and of every resource",
    "Tuning.max_workers": "maximum number of concurrent tasks of one run; an environment sets "
    "`runs.max_workers` instead",
    "Tuning.min_worker_seconds": "estimated seconds of work that justify one more worker; 0: any "
    "work; on one machine 4",
    "Tuning.rate_headroom": "workers start for this multiple of `prefix_put_rate`, because S3 "
    "raises the rate; on one machine 6",
    "Tuning.max_direct_members": "maximum number of members; 0: the state machine extracts every "
    "archive",
    "Tuning.batch_members": "maximum number of members in one batch",
    "Tuning.copy_part_bytes": "size of the range that one UploadPartCopy copies",
    "Tuning.nested_archives": "maximum number of nested archives",
    "Tuning.nested_bytes": "maximum number of bytes written for nested archives",
    "Tuning.nested_members": "maximum number of members in the directories of nested archives",
    "Tuning.parts_in_flight": "number of concurrent parts of one multipart upload",
    "Tuning.puts_in_flight": "maximum number of concurrent PUTs of one worker; on one machine 100, "
    "or a third of the open files that are allowed (`ulimit -n`) if that is less",
    "WorkSection.expire_days": "days after which a created bucket deletes the records of a run",
}

# Paragraphs of the pages.
TEXTS = {
    "cli": """\
`As for run:` lists the options that a command shares with `run`. They are described there.
""",
    "variables": """\
s3unzip finds credentials and regions where boto3 finds them: in `AWS_PROFILE`, `AWS_REGION`,
`~/.aws/config` and so on. It also reads these variables:
""",
    "settings": """\
The file `infra/environments/NAME.toml` has the settings of one environment on AWS. On one machine
the options of the [command line](cli.md), `S3UNZIP_TUNING` and `S3UNZIP_LIMITS` take its place.
Sizes are in bytes and times in seconds, unless the text says otherwise. An unknown or wrong setting
stops the synthesis with one line that names the setting.
""",
    "tuning": """\
Set these in the table `[tuning]` of the file, or on one machine as a JSON object in the variable
`S3UNZIP_TUNING`.
""",
    "limits": """\
Set these in the table `[limits]` of the file, or on one machine as a JSON object in the variable
`S3UNZIP_LIMITS`.
""",
    "options": """\
The table `[options]` of the file and the command line set these options. `report.json` repeats
them.
""",
    "errors": """\
A run that was planned ends with a verdict. If a run cannot be planned, or if a request is wrong,
the command ends with an error, which is one line on stderr.
""",
    "mistakes": """\
The table shows commands with a mistake, their exit codes and the lines that they print. A test runs
each of these commands. After a line about an archive, a line that begins with `help:` follows.
""",
    "names": """\
The names of the errors are public: Lambda reports them as `errorType`, and the state machine
decides by them whether to retry.
""",
    "checks": """\
The table lists every code of a reason or a warning that a report can contain. If an archive is
rejected, none of its members is written. A member that fails is listed with its code, the finding
and the byte offset in the archive; the other members are extracted. Warnings are counted.
`--lenient` changes only the codes that have an entry in its column. Several codes can belong to one
numbered check. The command line and the report page use the same words.

The decoders have two limits. Incomplete deflate codes, which zlib refuses, pass if the size and the
CRC-32 are right. A Deflate64 block without distance codes (RFC 1951, 3.2.7) fails as
`corrupt-stream`.
""",
    "metrics": """\
The metrics have the namespace `s3unzip` and the dimensions `service` and `environment`. The
functions write them into their logs in the embedded metric format. The same log lines name the run,
if there is one; the lines at the end of a run also name the archive. The
[dashboard](../howto/dashboard.md) draws each metric.
""",
    "events": """\
An archive starts a run when S3 announces `Object Created` through EventBridge. With `ingest.scan`
it starts when GuardDuty announces that the scan found no threat. The archive's key must begin
with `ingest.prefix` and end with `ingest.suffix`, or have the prefix and the suffix of a
[route](../howto/routes.md). A suffix fits as it is written, in lower case, in upper case or
capitalised (`.zip`, `.ZIP`, `.Zip`, but not `.zIp`). An event may arrive twice; the archive is
extracted once. The queue also takes S3's own notifications (`Records`) of created objects. S3's
other events start nothing.
""",
}

"""All numbers that estimates are based on, with their sources.

The numbers are documented limits of AWS, prices of AWS (us-east-1), measurements and assumptions.
Assumptions are marked as such; check these first if an estimate is wrong. This module computes
nothing.
"""

MB = 1_000_000
GB = 1_000_000_000

# --- Documented limits -------------------------------------------------------------------------

# "at least 3,500 PUT/COPY/POST/DELETE ... requests per second per partitioned prefix"; the scaling
# "happens gradually and is not instantaneous", and S3 answers with 503 while it scales.
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html
S3_PREFIX_WRITES = 3_500.0  # requests per second

# Distributed Map: child executions started per second.
# https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html
MAP_STARTS = 100.0  # Standard child executions per second
LAMBDA_SECONDS = 900.0  # maximum duration of an invocation

# "In this mode, the Map state supports up to 40 concurrent iterations."
# https://docs.aws.amazon.com/step-functions/latest/dg/state-map-inline.html
MAP_INLINE_AT_ONCE = 40
# https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
LAMBDA_CONCURRENCY = 1_000  # default for an account and Region; newer accounts have a lower limit
LAMBDA_VCPU_MB = 1_769  # memory that corresponds to one vCPU

# 625 Mbps sustained per execution environment.
# https://aws.amazon.com/about-aws/whats-new/2026/08/aws-lambda-network-bandwidth/
LAMBDA_BANDWIDTH = 78.0 * MB  # bytes per second

# The estimate for one request in the code of AWS's own transfer manager for Rust.
# https://github.com/awslabs/aws-s3-transfer-manager-rs
S3_REQUEST_UPLOAD = 20.0 * MB  # bytes per second

# --- Prices, us-east-1, dollars ----------------------------------------------------------------

# https://aws.amazon.com/s3/pricing/ ; DELETE, AbortMultipartUpload and 5xx responses are free:
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/ErrorCodeBilling.html
PRICE_S3_WRITE = 0.005 / 1_000  # PUT, COPY, POST, LIST
PRICE_S3_READ = 0.000_4 / 1_000  # GET and HEAD, including those with the response 404

# PUT, COPY and POST, by the storage class of the object.
PRICES_S3_WRITE = {
    "STANDARD": PRICE_S3_WRITE,
    "STANDARD_IA": 0.01 / 1_000,
    "ONEZONE_IA": 0.01 / 1_000,
    "INTELLIGENT_TIERING": 0.005 / 1_000,
    "GLACIER_IR": 0.02 / 1_000,
    "GLACIER": 0.03 / 1_000,
    "DEEP_ARCHIVE": 0.05 / 1_000,
    "REDUCED_REDUNDANCY": 0.005 / 1_000,
}
# Parts of objects in these classes are billed as STANDARD; only Complete has the price above:
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html ("and pricing")
PARTS_AS_STANDARD = frozenset({"GLACIER", "DEEP_ARCHIVE"})

# https://aws.amazon.com/lambda/pricing/ ; duration is rounded up to 1 ms, including the init phase.
PRICE_LAMBDA_GB_SECOND = 0.000_013_333_4  # price on arm64
PRICE_LAMBDA_REQUEST = 0.20 / 1_000_000

# https://aws.amazon.com/step-functions/pricing/ ; Express duration is rounded up to 100 ms, and
# memory to chunks of 64 MB.
PRICE_STANDARD_TRANSITION = 0.025 / 1_000

# https://aws.amazon.com/sqs/pricing/ : one request each for sending, receiving and deleting.
PRICE_SQS_REQUEST = 0.40 / 1_000_000
SQS_REQUESTS = 3

# https://aws.amazon.com/eventbridge/pricing/ : custom events, and the opt-in events of S3, which
# are sent for each new object in a bucket for which EventBridge is enabled.
PRICE_EVENT = 1.00 / 1_000_000
PRICE_S3_EVENT = 1.00 / 1_000_000
EVENTS = 1  # the event with the report

# https://aws.amazon.com/cloudwatch/pricing/
PRICE_LOG_BYTE = 0.50 / GB

# --- Measured by others, or assumed ------------------------------------------------------------

# Assumption: the mean of a lognormal distribution with a median of 30 ms
# (aws-s3-transfer-manager-rs) and a 99th percentile of 200 ms. AWS documents "roughly 100-200
# milliseconds" for small objects.
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html
S3_LATENCY = 0.042  # seconds

# Assumption: the rate of a prefix doubles after this many seconds of throttling. AWS says only that
# the rate grows "gradually"; https://errorreference.com/errors/aws/SlowDown says that the growth
# takes 15 to 30 minutes.
S3_GROWTH_SECONDS = 900.0

# Assumption: UploadPartCopy copies a part at about the planning rate of one connection.
# aws-c-s3 plans with 0.4 Gbps: https://github.com/awslabs/aws-c-s3 (source/s3_client.c)
S3_REQUEST_COPY = 50.0 * MB

# Measured by a user with 100 empty Express children: all of them ended within a second after
# MapRunStarted, and the state ended 6 s later.
# https://repost.aws/questions/QUn5oKgcnjRTemt39V9hdtyw/why-is-step-function-s-distributed-map-slow
MAP_SECONDS = 7.0  # to start and end a Distributed Map

# Assumption: a Standard execution takes 0.05 s to leave one state and enter the next. For an inline
# Map, there are four such transitions before the work begins (into two choices, the Map and the
# task) and two after it (out of the task and the Map).
INLINE_MAP_SECONDS = 6 * 0.05

# Assumed delays: S3 event -> EventBridge -> SQS -> planner, and StartExecution -> first state.
EVENT_SECONDS = 1.5
EXECUTION_START_SECONDS = 0.2

# Assumption, for Python on arm64 with a bundle of about 40 MB; a small bundle takes 0.3-0.7 s.
COLD_START_P50 = 0.9
COLD_START_P99 = 2.0

# Assumption: on a slow day, tasks take this many times as long as usual.
SLOW_DAY = 1.5

# Measured: our two log lines per task (1,320 bytes), Lambda's own two lines (650 bytes), and the 26
# bytes that CloudWatch adds to each line.
LOG_BYTES = 2_100  # bytes per invocation
# Assumption: an execution with one task has seven events of 430 bytes in two transitions.
TRANSITION_LOG_BYTES = 1_500

# Number of states of `infra.workflow` that an execution with one round enters, including Plan; each
# further round enters three states. The states of the tasks are counted separately.
TRANSITIONS = 7
TASK_TRANSITIONS = 2  # an iteration of an inline Map (or a child execution) and its task

# Memory of the plan function in the environments that we ship. The memory determines the price of a
# direct run. At the bounds of `Tuning` (256 MiB in members of 31 MiB), a direct run used at most
# 387 MB. Less memory slows down only the handler: a cold start uses a full CPU, as measured with
# memory sizes of up to 3 GB.
# https://bitesizedserverless.com/bite/lambda-cold-start-bootstrap/
DIRECT_MEMORY_MB = 576

# PUTs of a direct run in addition to those of members: the outcomes and the report.
DIRECT_WRITES = 2
# PUTs of a run of the state machine that no step counts: run.json, the page and the report. The
# PUTs of the outcomes are counted separately.
RUN_WRITES = 3

# --- Our own program, seconds of CPU on one core; `make bench` measures them --------------------

INFLATE_RATE = 809.0 * MB  # uncompressed bytes per second, measured with isal on mixed files
SCAN_INFLATES = 2  # a scan inflates with two dictionaries
BOUNDARY_SECONDS = 0.15  # time to find one segment boundary
PLAN_SECONDS = 0.15  # time to read the tail and to test the destination
PLAN_MEMBER_SECONDS = 4e-6  # make bench-plan: 3.4 to 4.5 s for 1,000,000 members
REPORT_FIXED_SECONDS = 0.2  # includes the reads of the report, which are sequential
DIRECT_SECONDS = 0.03  # fixed time of a direct run, without members and requests: 10 ms on a core
REPORT_MEMBER_SECONDS = 2e-6
LINK_SEGMENT_SECONDS = 0.002
OUTCOMES_AT_ONCE = 64  # task records that the report reads concurrently; a record can be 1 MB

# Assumed bytes per member in the central directory (46 plus the name, APPNOTE 4.3.12) and in
# members.jsonl.
DIRECTORY_ENTRY = 90
MEMBER_ROW = 100

# Assumptions if only the size of an archive is known: its bytes per member (as in an archive with
# 400,000 members of 10 KB), and its fixed cost in dollars.
USUAL_MEMBER_BYTES = 4_000
USUAL_ARCHIVE_DOLLARS = 0.000_02

# Assumptions about one machine and a store on its local network.
LOCAL_LATENCY = 0.007  # mean latency of one small request, in seconds
LOCAL_BANDWIDTH = 1.0 * GB  # bytes per second for the whole machine, in each direction
LOCAL_START_SECONDS = 0.3  # time until the workers are ready
DIRECT_MEMBER_BYTES = 32 * 1024**2  # up to this size, a member of a small archive needs one PUT

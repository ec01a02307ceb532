"""Functions run in AWS's runtime client, in the file system and environment that Lambda has."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from embedded.sandbox import __file__ as sandbox

from embedded.ministack import PYTHON
from tests.strict.places import until

if TYPE_CHECKING:
    from tests.strict.places import Place

MIB = 1024**2


@pytest.fixture(scope="module")
def _shut_in() -> None:
    """Skip where the kernel gives this user no mount namespace: nothing is enforced there."""
    refused = subprocess.run([PYTHON, "-P", sandbox, "--check"], capture_output=True, check=False)
    if refused.returncode:
        pytest.skip(f"this machine refuses mount namespaces: {refused.stderr.decode()[-200:]}")


def test_an_exception_has_its_class_name(place: Place) -> None:
    """An error's type is the class of what was raised, and the next call finds a warm process."""
    name = place.function(
        "import os\n"
        "class NoSuchMember(Exception): ...\n"
        "def handler(event, context):\n"
        "    if event == 'fail': raise NoSuchMember('m.txt')\n"
        "    return os.getpid()\n"
    )
    first = place.invoke(name)
    failed = place.invoke(name, "fail")
    assert failed.error == "Unhandled"
    assert failed.payload["errorType"] == "NoSuchMember"
    assert failed.payload["errorMessage"] == "m.txt"
    assert failed.payload["stackTrace"]
    assert place.invoke(name).payload == first.payload


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("os._exit(3)", "Runtime exited with error: exit status 3"),
        ("os._exit(0)", "Runtime exited without providing a reason"),
        ("os.kill(os.getpid(), 9)", "Runtime exited with error: signal: killed"),
    ],
)
def test_a_process_that_ends_is_an_exit_error(place: Place, end: str, words: str) -> None:
    """A function whose process ends fails with Runtime.ExitError and how it ended."""
    name = place.function(f"import os\ndef handler(event, context):\n    {end}\n")
    failed = place.invoke(name)
    assert failed.payload["errorType"] == "Runtime.ExitError"
    assert failed.payload["errorMessage"].endswith(f"Error: {words}")


def test_a_function_that_is_too_slow_times_out(place: Place) -> None:
    """After its timeout a function fails with Sandbox.Timedout, and the next call is answered."""
    name = place.function(
        "import time\n"
        "def handler(event, context):\n"
        "    time.sleep(event)\n"
        "    return context.get_remaining_time_in_millis()\n",
        Timeout=1,
    )
    failed = place.invoke(name, 30)
    assert failed.payload["errorType"] == "Sandbox.Timedout"
    assert failed.payload["errorMessage"].endswith("Task timed out after 1.00 seconds")
    assert 0 < place.invoke(name, 0).payload <= 1_000


def test_packages_of_ministack_cannot_be_imported(place: Place) -> None:
    """A function without awscrt in its asset does not find that of MiniStack."""
    name = place.function("def handler(event, context):\n    import awscrt\n")
    assert place.invoke(name).payload["errorType"] == "ModuleNotFoundError"


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("import no_such_module\n", "Runtime.ImportModuleError"),
        ("def handler(:\n", "Runtime.UserCodeSyntaxError"),
        ("other = 1\n", "Runtime.HandlerNotFound"),
    ],
)
def test_a_handler_that_cannot_be_loaded_is_named(place: Place, source: str, kind: str) -> None:
    """A broken module fails with the runtime's own error types."""
    failed = place.invoke(place.function(source))
    assert (failed.error, failed.payload["errorType"]) == ("Unhandled", kind)


def test_what_a_function_prints_is_in_its_log(place: Place) -> None:
    """Standard output and standard error reach the log group before the answer is given."""
    name = place.function(
        "import sys\n"
        "def handler(event, context):\n"
        "    print('to out', event); print('to err', event, file=sys.stderr)\n"
    )
    for number in range(20):
        place.invoke(name, number)
    events = place.client("logs").filter_log_events(logGroupName=f"/aws/lambda/{name}")["events"]
    text = "\n".join(event["message"] for event in events)
    assert all(f"to out {number}" in text and f"to err {number}" in text for number in range(20))


def test_what_a_start_prints_before_it_fails_is_in_the_log(place: Place) -> None:
    """The log group of a function that cannot start says why."""
    name = place.function("print('before the fault')\nimport no_such_module\n")
    assert place.invoke(name).error == "Unhandled"
    events = place.client("logs").filter_log_events(logGroupName=f"/aws/lambda/{name}")["events"]
    text = "\n".join(event["message"] for event in events)
    assert "before the fault" in text
    assert "no_such_module" in text


def test_a_start_that_fails_ends_no_other_environment(place: Place) -> None:
    """An invocation of the same function, which is in progress, goes on to its end."""
    s3 = place.client("s3")
    s3.create_bucket(Bucket="signs")
    name = place.function(
        "import os, time, urllib.error, urllib.request\n"
        "def exists(sign):\n"
        "    url = os.environ['AWS_ENDPOINT_URL'] + '/signs/' + sign\n"
        "    try:\n"
        "        return urllib.request.urlopen(url).close() is None\n"
        "    except urllib.error.HTTPError:\n"
        "        return False\n"
        "if exists('working'): os._exit(3)\n"
        "def handler(event, context):\n"
        "    put = urllib.request.Request(os.environ['AWS_ENDPOINT_URL'] + '/signs/working',\n"
        "        data=b'', method='PUT')\n"
        "    urllib.request.urlopen(put).close()\n"
        "    while not exists('end'): time.sleep(0.02)\n"
        "    return 'done'\n",
        Timeout=60,
    )
    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(place.invoke, name)
        until(lambda: s3.list_objects_v2(Bucket="signs")["KeyCount"], "the first invocation")
        failed = place.invoke(name)
        s3.put_object(Bucket="signs", Key="end")
        assert working.result().payload == "done"
    assert failed.payload["errorType"] == "Runtime.ExitError"


def test_a_cold_start_finds_nothing_of_another(place: Place) -> None:
    """Each environment has its own modules, random numbers, variables and exit of the process."""
    source = (
        "import atexit, logging, os, random\n"
        "before = getattr(logging, 'mark', None), os.environ.get('MARK')\n"
        "logging.mark = os.environ['MARK'] = 'set'\n"
        "atexit.register(print, 'exit of', os.getpid())\n"
        "def handler(event, context):\n"
        "    if event == 'end': raise SystemExit(7)\n"
        "    return [*before, os.getpid(), random.random(), os.getcwd()]\n"
    )
    name, other = place.function(source), place.function(source)
    first, second = place.invoke(name).payload, place.invoke(other).payload
    assert first[:2] == second[:2] == [None, None]
    assert first[2] != second[2]
    assert first[3] != second[3]
    ended = place.invoke(name, "end")
    assert ended.payload["errorMessage"].endswith("Runtime exited with error: exit status 7")
    events = place.client("logs").filter_log_events(logGroupName=f"/aws/lambda/{name}")["events"]
    assert f"exit of {first[2]}" in "\n".join(event["message"] for event in events)


def test_few_invocations_are_sampled(place: Place) -> None:
    """X-Ray samples the first of each second and one in twenty of the others."""
    name = place.function(
        "import os\ndef handler(event, context): return os.environ.get('_X_AMZN_TRACE_ID')\n",
        TracingConfig={"Mode": "Active"},
    )
    headers = [str(place.invoke(name).payload).split(";") for _ in range(60)]
    sampled = [header[2] == "Sampled=1" for header in headers]
    assert all(header[2] in {"Sampled=0", "Sampled=1"} for header in headers)
    seconds = [header[0].split("-")[1] for header in headers]
    firsts = [before != second for before, second in zip(["", *seconds], seconds, strict=False)]
    assert all(chosen for chosen, first in zip(sampled, firsts, strict=True) if first)
    others = [chosen for chosen, first in zip(sampled, firsts, strict=True) if not first]
    assert sum(others) == len(others) // 20
    untraced = place.function(
        "import os\ndef handler(event, context): return os.environ.get('_X_AMZN_TRACE_ID')\n"
    )
    assert place.invoke(untraced).payload is None


@pytest.mark.usefixtures("_shut_in")
def test_only_tmp_can_be_written(place: Place) -> None:
    """A function cannot write beside its code, nor anywhere but in /tmp."""
    name = place.function(
        "import pathlib, errno\n"
        "def handler(event, context):\n"
        "    try:\n"
        "        pathlib.Path(event).write_text('x')\n"
        "    except OSError as error:\n"
        "        return errno.errorcode[error.errno]\n"
        "    return 'written'\n"
    )
    assert place.invoke(name, "/tmp/mine").payload == "written"
    for path in ("/var/task/beside.py", "/usr/local/mine", "/var/tmp/mine", "/dev/mine"):
        assert place.invoke(name, path).payload in {"EROFS", "EACCES"}, path


@pytest.mark.usefixtures("_shut_in")
def test_the_code_is_the_task_root(place: Place) -> None:
    """The code, the working folder and LAMBDA_TASK_ROOT are /var/task; HOME is not set."""
    name = place.function(
        "import os\n"
        "def handler(event, context):\n"
        "    names = ('LAMBDA_TASK_ROOT', 'HOME', 'AWS_EXECUTION_ENV', 'TZ')\n"
        "    return [__file__, os.getcwd(), *map(os.environ.get, names)]\n"
    )
    assert place.invoke(name).payload == [
        *("/var/task/index.py", "/var/task", "/var/task", None, "AWS_Lambda_python3.13", ":UTC")
    ]


@pytest.mark.usefixtures("_shut_in")
def test_there_is_no_shared_memory(place: Place) -> None:
    """Without /dev/shm the locks, queues and pools of multiprocessing fail; a Pipe works."""
    name = place.function(
        "import multiprocessing, os\n"
        "def handler(event, context):\n"
        "    mine, other = multiprocessing.Pipe()\n"
        "    mine.send('sent')\n"
        "    try:\n"
        "        multiprocessing.Lock()\n"
        "    except OSError:\n"
        "        return [other.recv(), os.path.exists('/dev/shm')]\n"
    )
    assert place.invoke(name).payload == ["sent", False]


@pytest.mark.usefixtures("_shut_in")
def test_tmp_has_512_mb_of_its_own(place: Place) -> None:
    """/tmp is empty at a cold start, is not shared, and is full after 512 MB."""
    source = (
        "import errno, os\n"
        "def handler(event, context):\n"
        "    before = sorted(os.listdir('/tmp'))\n"
        "    written = 0\n"
        "    try:\n"
        "        with open('/tmp/large', 'wb', buffering=0) as file:\n"
        "            while written < event:\n"
        "                written += file.write(bytes(1 << 20))\n"
        "    except OSError as error:\n"
        "        os.remove('/tmp/large')\n"
        "        return errno.errorcode[error.errno]\n"
        "    return before\n"
    )
    first, second = place.function(source), place.function(source)
    held = place.invoke(first, MIB).payload
    assert "large" not in held
    assert "large" in place.invoke(first, MIB).payload
    assert place.invoke(second, MIB).payload == held
    assert place.invoke(first, 513 * MIB).payload == "ENOSPC"
    assert "large" in place.invoke(second, MIB).payload
    wide = place.function(source, EphemeralStorage={"Size": 600})
    assert place.invoke(wide, 513 * MIB).error is None
    assert "large" in place.invoke(wide, 1).payload

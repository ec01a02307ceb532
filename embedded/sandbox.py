"""The execution environment of one Lambda function, as AWS documents it, on Linux.

Run as ``python -P sandbox.py CODE``, with Lambda's own variables, by the strict rule
`embedded.strict.lambda_environment`. It gives this process a file system of its own,
then becomes AWS's runtime client:

- the code is `TASK` and nothing but ``/tmp`` can be written
  (docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html);
- ``/tmp`` is empty at a cold start and holds as many MiB as the function asks for;
- there is no ``/dev/shm``, so the locks and queues of `multiprocessing` fail
  (aws.amazon.com/blogs/compute/parallel-processing-in-python-with-aws-lambda).

It needs a mount namespace: root has one, and so has every user where the system
allows user namespaces. Where it does not, the function runs as it is and the
first line on standard error says so.

Environment: ``EMBEDDED_TMP_MIB``, the size of ``/tmp``; ``EMBEDDED_SHARED``, a folder that the
function may write to although Lambda has none, for tests that talk with it through files.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys
from pathlib import Path

TASK = "/var/task"
TMP = Path("/tmp")  # noqa: S108 - Lambda's own
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
UNCHECKED = "s3unzip: this machine refuses mount namespaces, the function is not shut in"

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000
_MOUNT_SETATTR = 442  # the same number on every architecture, Linux 5.12 and later
_READ_ONLY, _AT_RECURSIVE, _AT_FDCWD = 1, 0x8000, -100


class _Attributes(ctypes.Structure):
    """``struct mount_attr`` of mount_setattr(2)."""

    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("namespace", ctypes.c_uint64),
    )


def shut_in(code: Path, tmp_mib: int, shared: Path | None = None) -> None:
    """Give this process Lambda's file system, with the folder `code` at `TASK`.

    `shared` stays where it is and can be written. `separate_mounts` comes before it.

    Raises:
        OSError: a step failed; the process cannot go on, because some of its files are hidden.
    """
    held = _hold([code, *_needed_below_tmp(), *([shared] if shared else [])])
    _replace_devices()
    _replace_var(held[code])
    _mount("tmpfs", str(TMP), "tmpfs", 0, f"size={tmp_mib}m,mode=1777")
    for path, descriptor in held.items():
        if path == shared or (path.is_relative_to(TMP) and path != code):
            _bind(descriptor, path, folder=path not in _files())
    _set_attributes("/", _Attributes(set=_READ_ONLY), _AT_RECURSIVE)
    for path in (TMP, *([shared] if shared else [])):
        _set_attributes(str(path), _Attributes(clear=_READ_ONLY), 0)
    for descriptor in held.values():
        os.close(descriptor)


def separate_mounts() -> None:
    """Give this process mounts of its own, equal to the machine's.

    Raises:
        OSError: the system refuses; the process sees the same files as before.
    """
    user, group = os.getuid(), os.getgid()
    if _LIBC.unshare(_NEW_MOUNTS) != 0:
        _check(_LIBC.unshare(_NEW_MOUNTS | _NEW_USER), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount("none", "/", "", _RECURSIVE | _PRIVATE)
    _set_attributes("/", _Attributes(), 0)  # changes nothing; an older kernel refuses it


def _files() -> list[Path]:
    """Return the certificates that the function is told to trust."""
    names = ("AWS_CA_BUNDLE", "SSL_CERT_FILE")
    return sorted({Path(os.environ[name]) for name in names if os.environ.get(name)})


def _needed_below_tmp() -> list[Path]:
    """Return what the runtime needs and the new ``/tmp`` would hide: interpreter, libraries."""
    wanted = {Path(path) for path in (sys.prefix, sys.base_prefix, *sys.path) if path}
    inside = sorted(path for path in (*wanted, *_files()) if path.is_relative_to(TMP))
    return [
        path
        for path in inside
        if path.exists()
        and not any(path != other and path.is_relative_to(other) for other in inside)
    ]


def _hold(paths: list[Path]) -> dict[Path, int]:
    """Open the paths, which stay reachable by their descriptors when they are hidden."""
    return {path: os.open(path, os.O_PATH) for path in paths}


def _replace_devices() -> None:
    devices = [Path("/dev", name) for name in DEVICES]
    held = _hold([path for path in devices if path.exists()])
    _mount("tmpfs", "/dev", "tmpfs", 0, "size=64k,mode=755")
    for path, descriptor in held.items():
        _bind(descriptor, path, folder=False)
        os.close(descriptor)
    Path("/dev/fd").symlink_to("/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        Path("/dev", name).symlink_to(f"/proc/self/fd/{number}")


def _replace_var(code: int) -> None:
    """Put `TASK` beside what else is in ``/var``, which the host's folder cannot take."""
    entries = [path for path in Path("/var").iterdir() if str(path) != TASK]
    links = {path: path.readlink() for path in entries if path.is_symlink()}
    held = _hold([path for path in entries if path not in links and path.is_dir()])
    _mount("tmpfs", "/var", "tmpfs", 0, "size=64k,mode=755")
    for path, target in links.items():
        path.symlink_to(target)
    for path, descriptor in held.items():
        _bind(descriptor, path, folder=True)
        os.close(descriptor)
    _bind(code, Path(TASK), folder=True)


def _bind(descriptor: int, path: Path, *, folder: bool) -> None:
    if folder:
        path.mkdir(parents=True, exist_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    _mount(f"/proc/self/fd/{descriptor}", str(path), "", _BIND | _RECURSIVE)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    done = _LIBC.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode())
    _check(done, f"mount {target}")


def _set_attributes(path: str, attributes: _Attributes, flags: int) -> None:
    size = ctypes.sizeof(attributes)
    done = _LIBC.syscall(
        _MOUNT_SETATTR, _AT_FDCWD, path.encode(), flags, ctypes.byref(attributes), size
    )
    _check(done, f"mount_setattr {path}")


def _check(done: int, what: str) -> None:
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def main() -> None:
    """Become the runtime client of the function whose code is in the folder named.

    With ``--check`` in place of the folder, say by the exit code whether this
    machine lets a function be shut in.
    """
    if sys.argv[1] == "--check":
        separate_mounts()
        shut_in(Path("/usr"), 1)
        return
    root = sys.argv[1]
    tmp_mib = int(os.environ.pop("EMBEDDED_TMP_MIB", "512"))
    shared = os.environ.pop("EMBEDDED_SHARED", "")
    try:
        separate_mounts()
    except OSError as error:
        sys.stderr.write(f"{UNCHECKED}: {error}\n")
    else:
        shut_in(Path(root), tmp_mib, Path(shared) if shared else None)
        root = TASK
    os.chdir(root)
    os.environ["LAMBDA_TASK_ROOT"] = root
    sys.path.insert(0, root)
    # Only MiniStack has it. Lambda's asset does not, and botocore would import it at each start.
    vars(sys)["modules"]["awscrt"] = None
    sys.argv = ["awslambdaric", os.environ["_HANDLER"]]
    runpy.run_module("awslambdaric", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

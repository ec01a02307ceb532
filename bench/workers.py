"""Starts worker processes before the measurement begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.model import ScanReport, ScanTask, encode

if TYPE_CHECKING:
    from s3unzip.local.pool import WorkerPool

    from s3unzip.stores.ports import RunStore


def start_workers(pool: WorkerPool, workers: int, work: RunStore) -> None:
    """Start all workers, with numpy imported: each gets a scan that is already on record.

    The figure does not include the cost of a start, which depends on the machine.
    """
    scans = [ScanTask(f"warm-{n}", (0, 0), 0, 0, 1, 1) for n in range(workers)]
    for scan in scans:
        work.write(f"scans/{scan.id}.json", [encode(ScanReport(scan.id, 0, 0, found=False))])
    assert len(pool.work(scans).done) == workers

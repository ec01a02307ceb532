"""The multipart uploads that runs of this machine have open.

Two runs may write the same keys at once. A run that drops what killed workers left finds uploads by
their keys. So each upload has a file below ``uploads/``, beside the runs, with the id of its run.

* The file comes after the upload, and goes before or after it. An upload without a file, of a run
  that nobody works on, or of the run that asks, may be dropped.
* Whoever is killed leaves its files. They say nothing once nobody works on their run.
"""

import hashlib
from pathlib import Path

from s3unzip.local.locking import is_at_work
from s3unzip.stores.files import PRIVATE, explaining, make_folders


class OpenUploads:
    """What is known of uploads on this machine, whose runs are kept below `home`."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._folder = Path(home, "uploads")

    def note(self, upload_id: str, run: str) -> None:
        """Note that `run` began an upload."""
        path = self._path_of(upload_id)
        with explaining(str(path)):
            make_folders(self._folder, PRIVATE)
            path.write_text(run)

    def forget(self, upload_id: str) -> None:
        """Forget an upload that is complete or dropped."""
        path = self._path_of(upload_id)
        with explaining(str(path)):
            path.unlink(missing_ok=True)

    def is_of_another(self, upload_id: str, run: str) -> bool:
        """Return whether an upload is of another run than `run`, on which somebody works."""
        try:
            owner = self._path_of(upload_id).read_text()
        except FileNotFoundError:
            return False
        return owner != run and is_at_work(self._home, owner)

    def _path_of(self, upload_id: str) -> Path:
        """Return the file of an upload; its id may be too long for a name."""
        return self._folder / hashlib.sha256(upload_id.encode()).hexdigest()[:32]

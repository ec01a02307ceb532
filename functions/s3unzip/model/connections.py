"""How the stores of a run are reached, as its records keep it."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict, replace

# Fields without an option; only callers of the library set them.
NOT_TYPED = frozenset({"dest_region", "dest_owner", "max_spool"})


class Connections(Struct, frozen=True, omit_defaults=True):
    """``connections.json``: the options of how a run's stores are reached. It has no secret.

    The names are those of the command line's options. What is not set for the destination is the
    same as for the archive.
    """

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None  # the name of a profile, whose credentials are elsewhere
    no_sign_request: bool = False
    request_payer: bool = False
    dest_endpoint_url: str | None = None
    dest_region: str | None = None
    dest_profile: str | None = None
    dest_owner: str | None = None
    kms_key: str | None = None
    allow: tuple[str, ...] = ()  # what an HTTP source may do besides, as --allow has it
    max_spool: str | None = None  # limit of the temporary file, where the archive has one

    def words(self) -> list[str]:
        """Return the options as words of a command line."""
        words: list[str] = []
        for name, value in asdict(self).items():
            if name in NOT_TYPED:
                continue
            option = f"--{name.replace('_', '-')}"
            if value is True:
                words.append(option)
            elif isinstance(value, tuple):
                words += [word for one in value for word in (option, one)]
            elif value:
                words += [option, value]
        return words

    def at_destination(self) -> Connections:
        """Return how an archive is reached that is an object of the destination."""
        return replace(
            self,
            endpoint_url=self.dest_endpoint_url or self.endpoint_url,
            region=self.dest_region or self.region,
            profile=self.dest_profile or self.profile,
            no_sign_request=False,
            request_payer=False,
            dest_endpoint_url=None,
            dest_region=None,
            dest_profile=None,
            max_spool=None,
        )

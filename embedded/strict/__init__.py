"""Rules that AWS documents and MiniStack does not enforce, added inside MiniStack's process.

Each module has the rules of a service that the pipeline depends on. Its docstring states them and
the AWS pages; its ``install()`` patches MiniStack, which is pinned because its private names are
used. Only the standard library and MiniStack may be imported here: these modules run in MiniStack's
own environment.
"""

from importlib import import_module

# In this order; a later rule may wrap what an earlier one installed.
RULES = ("functions", "events", "states", "maps")


def install() -> None:
    """Install the rules into the MiniStack of this process."""
    for rule in RULES:
        import_module(f"{__name__}.{rule}").install()

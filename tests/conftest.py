"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# Machines are shared and noisy: how long an example takes says nothing about the code.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

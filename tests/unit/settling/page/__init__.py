"""Tests of the report page's values and its HTML; its behaviour is in tests/browser."""

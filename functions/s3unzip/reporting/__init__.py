"""The end of a run: settle it, write the report and its page, plan retries and nested runs."""

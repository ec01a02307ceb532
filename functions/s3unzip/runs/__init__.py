"""What a run leaves in its store: outcomes, rows, records, the stop file; reading and watching.

Every layer above reads and writes a run's objects through these modules.
"""

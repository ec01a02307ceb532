"""Where bytes come from and go to: archives, destinations, and the store of a run's objects.

`ports` has the interfaces and `calls` the retries and counts that every call goes through.
The adapters are `s3`, `folder` and `web`; `factory` opens the one that a location names.
The rest of the package imports the interfaces only; the programs (cli, local, aws_lambda,
operate) open the adapters.
"""

"""``python -m s3unzip``: the same as ``s3unzip``."""

from s3unzip.cli.__main__ import main

if __name__ == "__main__":
    main()

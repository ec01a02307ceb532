"""``python -m s3unzip.cli``: the same as ``s3unzip``."""

from s3unzip.cli.main import main

if __name__ == "__main__":
    main()

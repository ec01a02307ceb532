"""The tests of ceph/s3-tests that speak of what s3unzip relies on, run against our servers."""

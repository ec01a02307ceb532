"""Admission: how the runs of an environment share its workers."""

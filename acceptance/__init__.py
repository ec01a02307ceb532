"""The acceptance set: cases that run against a deployed environment."""

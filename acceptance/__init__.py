"""The acceptance set: one script of cases against a deployed environment, in an account or not."""

"""The commands on a deployed environment."""

"""Faults, injected: what breaks between the workers and a store, and what is left of the run."""

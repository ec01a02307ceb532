"""Commands on a deployed environment: find the stack, list, redrive and abort its runs."""

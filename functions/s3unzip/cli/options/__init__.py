"""Options that commands share: groups of them, and what becomes of them."""

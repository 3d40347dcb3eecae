"""Facts of all modules → qualified names and sites."""

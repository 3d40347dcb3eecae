"""The durable account of what the scheduler was told and decided, with tables of its jobs beside it."""

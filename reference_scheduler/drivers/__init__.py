"""Drivers translate between the core and a world: real or simulated."""

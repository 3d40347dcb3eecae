"""Random histories with faults in them, watched event by event; what fails is kept as a log."""

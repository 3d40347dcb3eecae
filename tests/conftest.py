"""Settings that every test shares."""

from hypothesis import settings

# No deadline: a slow or busy machine is no failing property.
settings.register_profile("repository", deadline=None)
settings.load_profile("repository")

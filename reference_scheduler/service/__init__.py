"""The scheduler as a service: a Unix socket, its protocol, who may ask for what, and the client."""

"""The reference scheduler: the one authority between durable jobs and the executors that run them."""

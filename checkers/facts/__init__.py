"""Source bytes → :class:`~checkers.facts.model.ModuleFacts`, one module at a time, without looking at any other."""

"""What can go wrong with a request to the scheduler; each error has a stable ``code`` for the wire."""

from __future__ import annotations

from typing import ClassVar


class SchedulerError(Exception):
    """The scheduler cannot do what it was asked; the message says why and what to do."""

    code: ClassVar[str] = "error"


class SubmissionError(SchedulerError):
    """A job was not accepted: nothing of it will ever run."""

    code = "refused"


class SchedulerDisabled(SubmissionError):
    """The configuration says ``enabled = false``."""

    code = "disabled"


class SchedulerStopping(SubmissionError):
    """The scheduler drains, or has stopped."""

    code = "stopping"


class QueueFull(SubmissionError):
    """A bound on waiting jobs is reached; try again when some have started."""

    code = "queue_full"


class SubmissionKeyConflict(SubmissionError):
    """The submission key belongs to another request."""

    code = "key_conflict"


class PayloadTooLarge(SubmissionError):
    """The encoded payload exceeds the limit."""

    code = "payload_too_large"


class InvalidSubmission(SubmissionError):
    """A field of the request is wrong; the message names it."""

    code = "invalid"


class UnknownKind(InvalidSubmission):
    """No executor is registered for the kind."""

    code = "unknown_kind"


class UnknownDependency(InvalidSubmission):
    """The request depends on a job that is not known, or no longer."""

    code = "unknown_dependency"


class ImpossibleRequest(SubmissionError):
    """The job asks for more than the whole budget, or an array for more places than the queue has."""

    code = "impossible"


class JournalError(SchedulerError):
    """The journal cannot be used."""

    code = "journal"


class JournalUnavailable(JournalError, SubmissionError):
    """The journal could not be written (disk full, locked for long, I/O error); nothing was accepted."""

    code = "journal_unavailable"


class JournalLocked(JournalError):
    """Another scheduler has the journal."""

    code = "journal_locked"


class JournalDamaged(JournalError):
    """What the journal holds is not what was written to it; it is not repaired."""

    code = "journal_damaged"


class JournalTooNew(JournalError):
    """A newer release wrote the journal."""

    code = "journal_too_new"


class JobEnded(SchedulerError):
    """The job has ended for good, so nothing about it changes any more."""

    code = "job_ended"


class IsArray(SchedulerError):
    """Only one job can be asked for that, not an array of them."""

    code = "is_array"


class NoSuchJob(SchedulerError):
    """There is no job of that id, or it was forgotten long after its end."""

    code = "no_such_job"

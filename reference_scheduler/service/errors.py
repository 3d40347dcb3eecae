"""What can go wrong between a client and the service, besides what the scheduler itself refuses."""

from __future__ import annotations

from reference_scheduler.errors import SchedulerError


class ServiceError(SchedulerError):
    """A request could not be served."""

    code = "service"


class BadRequest(ServiceError):
    """A line is no request that this version knows."""

    code = "bad_request"


class UnsupportedVersion(BadRequest):
    """The request is of another version of the protocol."""

    code = "unsupported_version"


class Denied(ServiceError):
    """The role of the peer does not allow it."""

    code = "denied"


class Busy(ServiceError):
    """All places are taken; a later try may find one."""

    code = "busy"


class NotPrimary(ServiceError):
    """This is a standby; the message says where the primary answers."""

    code = "standby"


class WaitedLongEnough(ServiceError):
    """The job has not ended within the time given to wait for it."""

    code = "timeout"


class InternalError(ServiceError):
    """A defect of the scheduler; its own log has the details."""

    code = "internal"


class Unreachable(ServiceError):
    """No scheduler answers; raised by the client, never sent."""

    code = "unreachable"

"""Responses to requests that are not admissions, as metav1.Status."""

from http import HTTPStatus

from server.http.messages import JSON, RETRY, Refusal, Response
from server.http.review import respond_status


def refused(refusal: Refusal) -> Response:
    """Return the response to a refused request."""
    headers = RETRY if refusal.status is HTTPStatus.SERVICE_UNAVAILABLE else JSON
    return Response(refusal.status, respond_status(refusal.status, refusal.message), headers)

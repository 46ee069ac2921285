"""Requests signed with AWS Signature Version 4, for Amazon OpenSearch Service."""

from __future__ import annotations

from typing import Any

from icecdc_core.errors import DependencyError, SecretError


def request_signer(region: str, service: str) -> Any:
    """Return a signer with the credentials of this machine: environment, profile or role.

    The driver and each executor find their own credentials, so no credentials travel.
    """
    try:
        import botocore.session
        from opensearchpy import Urllib3AWSV4SignerAuth
    except ImportError as error:
        raise DependencyError(
            "Signing requests for AWS needs the package botocore",
            subject="opensearch_aws_region",
            value=region,
            remedy='pip install "icecdc[aws]" on the driver and the executors',
        ) from error
    credentials = botocore.session.get_session().get_credentials()
    if credentials is None:
        raise SecretError(
            "No AWS credentials were found",
            subject="opensearch_aws_region",
            value=region,
            remedy="give driver and executors a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY on them",
        )
    return Urllib3AWSV4SignerAuth(credentials, region, service)

"""Settings of accounts: defaults of new organizations, token issuers, OpenID provider."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr, field_validator

from deployments.contract.strict_settings import Shape, StrictSettings
from serve_app.accounts.roles import Role


def without_slash(issuer: str) -> str:
    """Normalizes an issuer's name for comparison: providers and operators differ in a slash at the end."""
    return issuer.removesuffix("/")


class IssuerSettings(StrictSettings):
    issuer: str
    """Claim iss, such as https://login.example.com."""
    jwks_url: Annotated[str, Shape("^https?://", "must be a URL, like https://id.example.com/keys")]
    """URL of its public keys."""
    audience: str
    """Claim aud."""
    organization: str = "default"
    """Organization whose projects its tokens may name."""
    project_claim: str = "project"
    """Claim that names the project."""
    role_claim: str = "role"
    """Claim that names the role. Subjects of tokens without it must be members."""
    skew_s: float = Field(default=30.0, ge=0, le=600)
    """Clock difference that is accepted, seconds."""


class OpenIdSettings(StrictSettings):
    issuer: Annotated[str, Shape("^https?://[^/?#]", "must be a URL like https://login.example.com")]
    """URL of the provider. Its redirect URI here is <service>/v1/session/openid/back."""
    client_id: str
    """Client id of this service."""
    client_secret: SecretStr | None = None
    """Client secret; better in GEN_ACCOUNTS__OPENID__CLIENT_SECRET. null: none."""
    name_claim: str = "email"
    """Claim with the member's name."""
    scope: str = "openid email"
    """Scopes to request."""
    trust_email: bool = False
    """Accept addresses that the provider does not call verified."""


class AccountSettings(StrictSettings):
    first_credits: float = Field(default=100_000.0, ge=0)
    """Credits that the default organization gets once. For more: gen-serve credits grant."""
    max_projects: int = Field(default=20, ge=1)
    """Projects that an organization can create over HTTP; operators may exceed this and the next two."""
    max_keys: int = Field(default=100, ge=1)
    """API keys per project."""
    max_members: int = Field(default=1000, ge=1)
    """Members per organization."""
    issuers: list[IssuerSettings] = []
    """Issuers whose bearer tokens (JWT) are accepted beside keys."""
    local_role: Role | None = None
    """Role of users who open the pages on this machine without signing in. Requires a loopback service.host. null:
    none."""
    oauth_clients: bool = True
    """OAuth 2.1 clients may register and ask members for access."""
    openid: OpenIdSettings | None = None
    """OpenID provider for signing in on the pages; its users must be members. null: none."""

    @field_validator("issuers")
    @classmethod
    def _check_unique_issuers(cls, issuers: list[IssuerSettings]) -> list[IssuerSettings]:
        names = [without_slash(each.issuer) for each in issuers]
        if len(set(names)) < len(names):
            raise ValueError("each issuer may be named once")
        return issuers

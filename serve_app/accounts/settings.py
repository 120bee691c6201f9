"""Settings of accounts: defaults of new organizations, token issuers, OpenID provider."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr, field_validator

from deployments.contract.strict_settings import Shape, StrictSettings
from serve_app.accounts.jwt_auth import Issuer, without_slash
from serve_app.accounts.openid import Provider
from serve_app.accounts.roles import Role


class IssuerSettings(StrictSettings):
    issuer: str
    jwks_url: Annotated[str, Shape("^https?://", "must be a URL, like https://id.example.com/keys")]
    audience: str
    organization: str = "default"
    project_claim: str = "project"
    role_claim: str = "role"
    skew_s: float = Field(default=30.0, ge=0, le=600)


class OpenIdSettings(StrictSettings):
    issuer: Annotated[str, Shape("^https?://[^/?#]", "must be a URL like https://login.example.com")]
    client_id: str
    client_secret: SecretStr | None = None
    name_claim: str = "email"
    scope: str = "openid email"
    trust_email: bool = False


class AccountSettings(StrictSettings):
    first_credits: float = Field(default=100_000.0, ge=0)
    max_projects: int = Field(default=20, ge=1)
    max_keys: int = Field(default=100, ge=1)
    max_members: int = Field(default=1000, ge=1)
    issuers: list[IssuerSettings] = []
    local_role: Role | None = None
    oauth_clients: bool = True
    openid: OpenIdSettings | None = None

    @field_validator("issuers")
    @classmethod
    def _check_unique_issuers(cls, issuers: list[IssuerSettings]) -> list[IssuerSettings]:
        names = [without_slash(each.issuer) for each in issuers]
        if len(set(names)) < len(names):
            raise ValueError("each issuer may be named once")
        return issuers

    def openid_provider(self) -> Provider | None:
        if self.openid is None:
            return None
        secret = self.openid.client_secret
        options = self.openid.model_dump(exclude={"client_secret"})
        return Provider(**options, client_secret=secret.get_secret_value() if secret else None)

    def trusted_issuers(self) -> list[Issuer]:
        return [Issuer(**issuer.model_dump()) for issuer in self.issuers]

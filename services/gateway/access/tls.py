"""Certificates of the doors."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path
from typing import Any

import grpc
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

logger = logging.getLogger(__name__)


class TlsConfig(BaseModel):
    """PEM files, on every node with a gateway. Without them the doors speak plain text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    certificate: Path | None = Field(default=None, description="Certificate with its chain; none: no TLS.")
    key: Path | None = Field(default=None, description="Private key of the certificate, without a password.")
    client_ca: Path | None = Field(
        default=None, description="gRPC clients must show a certificate signed by one of these; none: they need not."
    )

    @field_validator("certificate", "key", "client_ca")
    @classmethod
    def _from_anywhere(cls, path: Path | None) -> Path | None:
        """Replicas run in folders of their own."""
        return None if path is None else path.expanduser().absolute()

    @model_validator(mode="after")
    def _go_together(self) -> TlsConfig:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together: name both or none")
        if self.client_ca is not None and self.certificate is None:
            raise ValueError("client_ca: it needs certificate and key as well")
        return self

    @property
    def is_on(self) -> bool:
        return self.certificate is not None


class Certificates:
    """What the gRPC server shows. Files that are replaced take effect with the next connection."""

    def __init__(self, config: TlsConfig) -> None:
        """Raises ValueError, naming the files, for those that cannot be used."""
        assert config.certificate is not None
        assert config.key is not None
        self._certificate, self._key, self._client_ca = config.certificate, config.key, config.client_ca
        try:
            self._version = self._stat()
            self._current = self._read()
        except OSError as error:
            name = error.filename or f"{self._certificate} with {self._key}"
            raise ValueError(f"tls: {name} cannot be used ({error.strerror or error})") from error

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(self._current, self._renewed, self._client_ca is not None)

    def _renewed(self) -> Any:
        """Asked at every handshake, in a thread of gRPC's; None: as before."""
        try:
            version = self._stat()
            if version == self._version:
                return None
            self._version = version  # before reading: what is written meanwhile is read at the next look
            found = self._read()
        except OSError as error:
            logger.error("the certificate files cannot be used; the last good ones stay: %s", error)
            return None
        logger.info("the certificate files were read anew")
        return found

    def _read(self) -> Any:
        """Raises OSError for files that cannot be read, are no PEM or do not go together."""
        chain, key = self._certificate.read_bytes(), self._key.read_bytes()
        roots = None if self._client_ca is None else self._client_ca.read_bytes()
        # gRPC would find out at the first handshake, and tell nobody.
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trial.load_cert_chain(self._certificate, self._key, password=lambda: "")
        if self._client_ca is not None:
            trial.load_verify_locations(self._client_ca)
        return grpc.ssl_server_certificate_configuration([(key, chain)], roots)

    def _stat(self) -> tuple[tuple[int, int, int], ...]:
        paths = [path for path in (self._certificate, self._key, self._client_ca) if path is not None]
        return tuple((s.st_ino, s.st_mtime_ns, s.st_size) for s in (os.stat(path) for path in paths))

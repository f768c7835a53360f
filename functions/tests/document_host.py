"""A host on this machine that serves client documents over real TLS, as a test says; and the authority of its certificates."""

import asyncio
import datetime
import ipaddress
import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAME = "app.example.com"
URL = f"https://{NAME}/oauth/client.json"
CALLBACK = f"https://{NAME}/callback"

Says = Callable[[asyncio.StreamWriter], Awaitable[None]]


def document(url: str = URL, **changes: Any) -> dict[str, Any]:
    """A document that may be used, but for changes; None leaves a member out."""
    whole = {
        "client_id": url,
        "client_name": "An application",
        "redirect_uris": [CALLBACK],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        **changes,
    }
    return {name: value for name, value in whole.items() if value is not None}


def answer(body: bytes, *headers: str, status: str = "200 OK", content_type: str | None = "application/json") -> bytes:
    """A whole HTTP answer, with a length unless `headers` say how long it is."""
    length = [] if any("transfer-encoding" in each.lower() for each in headers) else [f"Content-Length: {len(body)}"]
    typed = [f"Content-Type: {content_type}"] if content_type else []
    lines = [f"HTTP/1.1 {status}", *typed, *length, *headers, "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


def served(document: Any) -> bytes:
    return answer(json.dumps(document).encode())


class Authority:
    """A certificate authority that a client may be told to trust."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "An authority of the tests")])
        self._certificate = self._signed(
            self._name,
            self._key.public_key(),
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (_usage(signs_certificates=True), True),
        )

    @property
    def pem(self) -> str:
        """Its certificate."""
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def trusting(self) -> ssl.SSLContext:
        """What a client has that trusts this authority alone."""
        return ssl.create_default_context(cadata=self.pem)

    def server(self, *names: str, days: int = 1) -> ssl.SSLContext:
        """What a server has whose certificate is for names, or addresses, and ends in so many days."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(
            x509.Name([]),
            key.public_key(),
            (x509.SubjectAlternativeName([_general(name) for name in names]), True),
            days=days,
        )
        file = self._folder / "server.pem"
        file.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *extensions: tuple[x509.ExtensionType, bool],
        days: int = 1,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        ends = now + datetime.timedelta(days=days)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, ends) - datetime.timedelta(days=1))
            .not_valid_after(ends)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256())


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@dataclass
class DocumentHost:
    """What was asked, and what to answer: bytes, or what a test does with the connection."""

    says: bytes | Says = field(default_factory=lambda: served(document()))
    port: int = 0
    connections: int = 0
    asked: list[str] = field(default_factory=list[str])
    """The heads of requests, as they came."""
    names: list[str | None] = field(default_factory=list[str | None])
    """The names that the TLS handshakes were for."""
    tls: ssl.SSLContext | None = None
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def has_been_asked(self, times: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.asked) >= times)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await (reader.readuntil(b"\r\n\r\n") if self.tls else reader.read(65_536))
            async with self.changed:
                self.asked.append(head.decode("latin-1"))
                self.changed.notify_all()
            if isinstance(self.says, bytes):
                writer.write(self.says)
            else:
                await self.says(writer)
            await writer.drain()
        writer.close()

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None) -> AsyncGenerator["DocumentHost"]:
        """Answers on a port of loopback, until the end of the block."""
        self.tls = tls
        if tls is not None:
            tls.sni_callback = lambda _, name, __: self.names.append(name)
        server = await asyncio.start_server(self._link, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

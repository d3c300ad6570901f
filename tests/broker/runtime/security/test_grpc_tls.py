"""gRPC servers that show and ask for what `ServerTls` says, and what they learn of clients."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from e2e.harness.authority import Authority

from headrace_broker.config.configuration import ConfigError
from headrace_broker.config.tls import TlsSection
from headrace_broker.runtime.security.certificate import CertificateRefusedError
from headrace_broker.runtime.security.tls import ServerTls

METHOD = "/test.Service/Method"
LOCK = ("-aes256", "-passout", "pass:sesame")


@pytest.fixture
def files(certificates, tmp_path):
    """A copy of the certificates that a test may change."""
    for source, name in (
        (certificates.server.certificate, "server.pem"),
        (certificates.server.key, "server.key"),
        (certificates.authority.file, "ca.pem"),
    ):
        shutil.copy(source, tmp_path / name)
    return tmp_path


def tls_of(files: Path, **more: Any) -> ServerTls:
    section: dict[str, Any] = {
        "certificate_file": str(files / "server.pem"),
        "key_file": str(files / "server.key"),
        "ca_file": str(files / "ca.pem"),
        "verify": "peer",
        "fail_if_no_peer_cert": True,
        "login_from": "common_name",
    }
    return ServerTls(TlsSection(**(section | more)))


class Server:
    """A gRPC server that answers with its client's identity."""

    def __init__(self, tls: ServerTls) -> None:
        self.tls = tls
        self.port = 0

    async def __aenter__(self) -> Server:
        handler = grpc.unary_unary_rpc_method_handler(self._answer)
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("test.Service", {"Method": handler}),)
        )
        self.port = self._server.add_secure_port("127.0.0.1:0", self.tls.grpc_credentials())
        await self._server.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._server.stop(None)

    async def _answer(self, request: bytes, context: Any) -> bytes:
        try:
            found = self.tls.describe_grpc(context.auth_context())
        except CertificateRefusedError as refusal:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(refusal))
        return "|".join((found.version, found.subject, found.login, str(found.external))).encode()

    async def ask(self, certificates, pair=None, authority=None) -> str:
        root = (authority or certificates.authority).file.read_bytes()
        own = {}
        if pair is not None:
            own = {
                "private_key": pair.key.read_bytes(),
                "certificate_chain": pair.certificate.read_bytes(),
            }
        credentials = grpc.ssl_channel_credentials(root, **own)
        options = [
            ("grpc.ssl_target_name_override", "localhost"),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        address = f"127.0.0.1:{self.port}"
        async with grpc.aio.secure_channel(address, credentials, options) as channel:
            ask = channel.unary_unary(METHOD, bytes, bytes)
            answer: bytes = await ask(b"", timeout=20)
            return answer.decode()


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await body()

    asyncio.run(main())


async def refusal(server: Server, certificates, pair=None, **more: Any) -> tuple[Any, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await server.ask(certificates, pair, **more)
    return caught.value.code(), caught.value.details() or ""


def test_a_client_is_who_its_certificate_says_as_over_amqp(files, certificates):
    async def body() -> None:
        for login_from, login in (
            ("none", ""),
            ("common_name", "guest"),
            ("distinguished_name", "CN=guest,O=mill\\, race"),
        ):
            async with Server(tls_of(files, login_from=login_from)) as server:
                version, subject, found, external = (
                    await server.ask(certificates, certificates.client)
                ).split("|")
                assert version in ("TLSv1.2", "TLSv1.3")
                assert subject == "CN=guest,O=mill\\, race"
                assert (found, external) == (login, str(login_from != "none"))

    run(body)


def test_clients_without_a_right_certificate_do_not_get_through(files, certificates):
    stranger = certificates.stranger.sign("/CN=guest", "grpc-stranger")
    expired = certificates.authority.sign("/CN=guest", "grpc-expired", days=-1)

    async def body() -> None:
        async with Server(tls_of(files)) as server:
            for pair in (None, stranger, expired):
                code, _ = await refusal(server, certificates, pair)
                assert code is grpc.StatusCode.UNAVAILABLE

    run(body)


def test_clients_need_no_certificate_unless_it_is_required(files, certificates):
    async def body() -> None:
        async with Server(tls_of(files, fail_if_no_peer_cert=False)) as server:
            version, subject, login, external = (await server.ask(certificates)).split("|")
            assert version
            assert (subject, login, external) == ("", "", "True")

    run(body)


def test_a_renewal_counts_for_the_next_handshake_of_a_running_server(files, certificates):
    stranger = certificates.stranger.sign("/CN=guest", "grpc-renewed")

    async def body() -> None:
        async with Server(tls_of(files)) as server:
            assert "guest" in await server.ask(certificates, certificates.client)
            shutil.copy(certificates.stranger.file, files / "ca.pem")
            server.tls.renew()
            await refusal(server, certificates, certificates.client)
            assert "guest" in await server.ask(certificates, stranger)
            shutil.copy(stranger.certificate, files / "server.pem")
            shutil.copy(stranger.key, files / "server.key")
            server.tls.renew()
            await refusal(server, certificates, stranger)
            found = await server.ask(certificates, stranger, authority=certificates.stranger)
            assert "guest" in found

    run(body)


def test_a_revoked_certificate_is_refused_after_the_list_is_read_anew(
    tmp_path, files, certificates
):
    authority = Authority(tmp_path, "revoking")
    good, bad = (authority.sign(f"/CN={name}", name) for name in ("good", "bad"))
    shutil.copy(authority.file, files / "ca.pem")
    lists = authority.revoke()

    async def body() -> None:
        async with Server(tls_of(files, crl_file=str(lists))) as server:
            assert "bad" in await server.ask(certificates, bad)
            authority.revoke(bad.certificate)
            server.tls.renew()
            code, text = await refusal(server, certificates, bad)
            assert (code, text) == (grpc.StatusCode.UNAUTHENTICATED, "it was revoked")
            assert "good" in await server.ask(certificates, good)
            authority.revoke(days=-1)
            server.tls.renew()
            _, text = await refusal(server, certificates, good)
            assert text == "the revocation list of its issuer has expired"
            lists.write_bytes(b"")
            with pytest.raises(ConfigError, match=r"crl_file: .*: holds no PEM revocation list"):
                server.tls.renew()

    run(body)


def test_a_list_of_another_authority_lets_nobody_in(files, certificates, tmp_path):
    lists = certificates.stranger.revoke()

    async def body() -> None:
        async with Server(tls_of(files, crl_file=str(lists))) as server:
            _, text = await refusal(server, certificates, certificates.client)
            assert text == "there is no revocation list of its issuer"

    run(body)


def test_an_encrypted_key_is_opened(files, certificates):
    locked = files / "locked.key"
    subprocess.run(
        ["openssl", "ec", "-in", files / "server.key", "-out", locked, *LOCK],
        check=True,
        capture_output=True,
    )

    async def body() -> None:
        tls = tls_of(files, key_file=str(locked), key_password="sesame")
        async with Server(tls) as server:
            assert "guest" in await server.ask(certificates, certificates.client)

    run(body)

"""The image as `make image` builds it: its content, and the server in it under the restrictions of the chart."""

import json
import re
import socket
import ssl
import stat
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rules_engine.server.cluster.connection import SERVICE_ACCOUNT
from rules_engine.server.tls import identity
from tests.support.apiserver import ApiServer, api_server, kubeconfig, node
from tests.support.container import EPOCH, Image, build_image, require_programs
from tests.support.doctor import Process
from tests.support.operating import until
from tests.support.server import MIG_POD, Running, certificate_files, encoded, review

MIB = 1024 * 1024
TOKEN = "a token"
CERTIFICATE = "/etc/gpu-rules/tls"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    require_programs()
    folder = tmp_path_factory.mktemp("image")
    build_image(folder / "image.tar")
    return Image.unpack(folder / "image.tar", folder / "root")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    """API server with TLS and authentication, and tmp_path/account as the service account's folder."""
    files = identity.localhost_files(tmp_path / "api", now=datetime.now(UTC))
    assert files.ca is not None
    (tmp_path / "account").mkdir()
    (tmp_path / "account" / "ca.crt").write_bytes(files.ca.read_bytes())
    (tmp_path / "account" / "token").write_text(TOKEN)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    with api_server(context) as server:
        server.tokens = {TOKEN}
        server.put("nodes", node("one", {"nvidia.com/gpu": "2"}))
        yield server


def test_the_same_inputs_give_the_same_bytes(image: Image, tmp_path: Path) -> None:
    build_image(tmp_path / "image.tar", BASE="localhost/gpu-rules-base")
    assert (tmp_path / "image.tar").read_bytes() == image.archive.read_bytes()


def test_the_image_is_small(image: Image) -> None:
    assert image.compressed_bytes <= 100 * MIB
    assert image.unpacked_bytes <= 250 * MIB


def test_nothing_that_installs_packages_and_no_bytecode_is_left(image: Image) -> None:
    unwanted = re.compile(r"pip|pip\d.*|pip-.*|setuptools|setuptools-.*|ensurepip|python-wheels|__pycache__|.*\.pyc")
    assert [str(path) for path in image.root.rglob("*") if unwanted.fullmatch(path.name)] == []


def test_files_are_of_root_and_of_one_time_and_raise_no_privileges(image: Image) -> None:
    for path in image.root.rglob("*"):
        status = path.lstat()
        name = path.relative_to(image.root)
        if stat.S_ISREG(status.st_mode):
            assert status.st_uid == 0, name
            assert status.st_mtime == int(EPOCH), name
            assert not status.st_mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH), name


def test_nothing_of_the_building_machine_is_left(image: Image) -> None:
    for name in ("hostname", "hosts", "resolv.conf"):
        path = image.root / "etc" / name
        assert not path.exists() or path.read_text() == "", name


def test_the_demo_runs(image: Image, tmp_path: Path) -> None:
    assert "Every pod has the expected result." in image.run(tmp_path / "demo", "demo")


@contextmanager
def serving(image: Image, folder: Path, api: ApiServer) -> Iterator[Running]:
    """Run `serve` in a pod's environment, with a certificate for localhost."""
    now = datetime.now(UTC)
    files = certificate_files(folder / "tls", now - timedelta(days=1), now + timedelta(days=1))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = ["serve", f"--listen=127.0.0.1:{port}", "--rules=set:gpu-allocation", "--cluster=in-cluster"]
    arguments += [f"--tls-cert={CERTIFICATE}/given.crt", f"--tls-key={CERTIFICATE}/given.key"]
    mounts = {CERTIFICATE: folder / "tls", str(SERVICE_ACCOUNT): folder / "account"}
    account = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": api.url.rpartition(":")[2]}
    with image.running(folder / "serve", *arguments, mounts=mounts, **account) as process:
        server = Running(process, f"https://localhost:{port}", files[0], folder / "serve" / "log")
        until(lambda: process.poll() is not None or is_ready(server), "a server that is ready")
        assert process.poll() is None, server.logged()
        yield server


def is_ready(server: Running) -> bool:
    try:
        return server.send("GET", "/readyz").status == 200
    except ConnectionRefusedError:
        return False


def test_serve_answers_and_watches_by_its_service_account(image: Image, tmp_path: Path, api: ApiServer) -> None:
    with serving(image, tmp_path, api) as server:
        answer = server.send("POST", "/mutate", encoded(review(MIG_POD)))
    assert answer.status == 200
    assert {"op": "add", "path": "/metadata/annotations"}.items() <= answer.patch[0].items()
    assert {request.token for request in api.requests} == {TOKEN}


def test_doctor_watches_by_a_kubeconfig(image: Image, tmp_path: Path, api: ApiServer) -> None:
    authority = b64encode((tmp_path / "account" / "ca.crt").read_bytes()).decode()
    url = api.url.replace("localhost", "127.0.0.1")  # the runtime brings the names
    config = kubeconfig(tmp_path, url, {"token": TOKEN}, {"certificate-authority-data": authority})
    arguments = ["doctor", "--watch", "--metrics-listen=127.0.0.1:0"]
    with image.running(
        tmp_path / "doctor", *arguments, mounts={"/etc/kubeconfig": config}, KUBECONFIG="/etc/kubeconfig"
    ) as process:
        doctor = Process(process, tmp_path / "doctor" / "log")
        until(lambda: doctor.url or process.poll() is not None, "the address")
        assert process.poll() is None, doctor.log.read_text()
        until(lambda: doctor.get("/readyz")[0] == 200, "a report")
    assert {request.token for request in api.requests} == {TOKEN}


ATTACK = """
import errno, json, os, socket

def attempt(action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"

results = {path: attempt(lambda: open(path, "w")) for path in PATHS}
for name, action in (("setuid", os.setuid), ("setgid", os.setgid)):
    results[name] = attempt(action, 0)
results["mknod"] = attempt(os.mknod, "/tmp/device", 0o20666, os.makedev(1, 1))
results["chroot"] = attempt(os.chroot, "/tmp")
results["privileged port"] = attempt(socket.socket().bind, ("127.0.0.1", 80))
results["raw socket"] = attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
results["processes"] = [name for name in os.listdir("/proc") if name.isdigit()]
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
results |= {name: value.split() for name, value in status.items() if name.startswith(("Cap", "NoNewPrivs", "Uid"))}
print(json.dumps(results))
"""

UNWRITABLE = ("/new", "/etc/passwd", "/usr/bin/python3", "/opt/gpu-rules/new", "/run/lock/new", "/var/tmp/new")


def test_a_process_gains_nothing(image: Image, tmp_path: Path) -> None:
    program = f"PATHS = {(*UNWRITABLE, '/tmp/new')!r}\n{ATTACK}"
    capabilities = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")

    assert json.loads(image.run(tmp_path / "attack", "/usr/bin/python3", "-c", program)) == {
        **dict.fromkeys(UNWRITABLE, "EROFS"),
        "/tmp/new": "done",
        **dict.fromkeys(("setuid", "setgid", "mknod", "chroot", "raw socket"), "EPERM"),
        "privileged port": "EACCES",
        "processes": ["1"],
        "Uid": ["65532"] * 4,
        "NoNewPrivs": ["1"],
        **{name: ["0" * 16] for name in capabilities},
    }

"""The image of the server, built by `make image` and run by crun as the chart runs it.

User 65532, a read-only root, /tmp in memory, no capabilities, no new privileges; the network is this machine's, so that
servers listen on loopback.
"""

import json
import os
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deploy import render
from tests.support.server import PATIENCE_SECONDS

PROGRAMS = ("buildah", "crun", "mmdebstrap")

EPOCH = "1700000000"
"""Time of every file of the image."""


def require_programs() -> None:
    """Skip the test if this machine cannot build the image and run it."""
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("needs root to make the base and to run a container")


def build_image(archive: Path, **variables: str) -> None:
    command = ["sh", str(render.DEPLOY / "image.sh"), str(archive)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH, **variables}
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Image with its only layer unpacked."""

    archive: Path
    root: Path
    config: Mapping[str, Any]
    compressed_bytes: int
    unpacked_bytes: int

    @classmethod
    def unpack(cls, archive: Path, root: Path) -> "Image":
        with tarfile.open(archive) as outer:

            def blob(digest: str) -> Any:
                return outer.extractfile(f"./blobs/{digest.replace(':', '/')}")

            (entry,) = json.load(outer.extractfile("./index.json"))["manifests"]  # type: ignore[arg-type]
            manifest = json.load(blob(entry["digest"]))
            (layer,) = manifest["layers"]
            with tarfile.open(fileobj=blob(layer["digest"])) as inner:
                inner.extractall(root, filter="fully_trusted")
                size = sum(member.size for member in inner)
            config = json.load(blob(manifest["config"]["digest"]))["config"]
        return cls(archive=archive, root=root, config=config, compressed_bytes=layer["size"], unpacked_bytes=size)

    def start(
        self, folder: Path, *arguments: str, mounts: Mapping[str, Path] | None = None, **variables: str
    ) -> "subprocess.Popen[bytes]":
        """Run the image's command with arguments, or a program given by its path; output goes to folder/log."""
        folder.mkdir()
        subprocess.run(["crun", "spec"], cwd=folder, check=True)
        spec = json.loads((folder / "config.json").read_text())
        uid, gid = map(int, self.config["User"].split(":"))
        entry = [] if arguments[0].startswith("/") else self.config["Entrypoint"]
        spec["process"] |= {
            "terminal": False,
            "user": {"uid": uid, "gid": gid},
            "args": [*entry, *arguments],
            "env": [*self.config["Env"], *(f"{name}={value}" for name, value in variables.items())],
            "cwd": self.config["WorkingDir"],
            "capabilities": {},
            "noNewPrivileges": True,
        }
        spec["root"] = {"path": str(self.root), "readonly": True}
        spec["linux"]["namespaces"] = [kind for kind in spec["linux"]["namespaces"] if kind["type"] != "network"]
        spec["mounts"] += [
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]},
            *(
                {"destination": inside, "source": str(outside), "options": ["bind", "ro"]}
                for inside, outside in (mounts or {}).items()
            ),
        ]
        (folder / "config.json").write_text(json.dumps(spec))
        # crun refuses machines with both versions of cgroups unless it does not see the second.
        crun = f"exec crun --root {folder}/state --cgroup-manager=disabled run -b {folder} gpu-rules-{os.getpid()}"
        command = ["unshare", "--mount", "sh", "-c", f"umount /sys/fs/cgroup/unified 2>/dev/null; {crun}"]
        with (folder / "log").open("wb") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def run(self, folder: Path, *arguments: str) -> str:
        """Run to the end and return the output."""
        process = self.start(folder, *arguments)
        code = process.wait(PATIENCE_SECONDS)
        output = (folder / "log").read_text()
        assert code == 0, output
        return output

    @contextmanager
    def running(
        self, folder: Path, *arguments: str, mounts: Mapping[str, Path] | None = None, **variables: str
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """Run while the block lasts, then end it by SIGTERM."""
        process = self.start(folder, *arguments, mounts=mounts, **variables)
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_SECONDS) == 0, (folder / "log").read_text()
        finally:
            process.kill()
            process.wait(PATIENCE_SECONDS)

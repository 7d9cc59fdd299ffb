"""Places to store at: a folder, fsspec's memory, and an object store on this machine."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

from edgesim.storage.store import Store

BUCKET = "edgesim-tests"


@contextmanager
def s3_server() -> Iterator[str]:
    """Endpoint of a store that speaks S3, with one bucket; credentials are in the environment."""
    import boto3  # these two are slow to import, and not all processes of `make test` need them
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "tests")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "tests")
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        environment.setenv("AWS_ENDPOINT_URL", endpoint)
        client = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield endpoint
    server.stop()


@pytest.fixture(scope="session")
def bucket():
    """URI of a bucket."""
    with s3_server():
        yield f"s3://{BUCKET}"


@pytest.fixture(scope="session")
def s3_store(bucket):
    """A store in it; to connect takes a second."""
    return Store.at(f"{bucket}/stores")


@pytest.fixture(params=["folder", "memory", "s3"])
def store(request, tmp_path):
    """An empty store of each kind."""
    match request.param:
        case "folder":
            found = Store.at(tmp_path / "store")
            found.make()
        case "memory":
            found = Store.at(f"memory://{uuid4().hex}/store")
        case _:
            found = request.getfixturevalue("s3_store").child(f"{uuid4().hex}/store")
    return found


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)

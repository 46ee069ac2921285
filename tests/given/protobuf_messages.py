"""Messages of Google's Protobuf library, by the .proto text of their schema."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc


def message_classes(text: str, imports: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the class of each message of a file by its name; imports are texts by their path."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for path, content in {**(imports or {}), "own.proto": text}.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(content)
        well_known = Path(protoc.__file__).with_name("_proto")
        options = [f"-I{folder}", f"-I{well_known}", "--include_imports", f"--descriptor_set_out={folder / 'set'}"]
        assert protoc.main(["protoc", *options, "own.proto"]) == 0
        files = descriptor_pb2.FileDescriptorSet.FromString((folder / "set").read_bytes()).file
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    own = pool.FindFileByName("own.proto").message_types_by_name
    return {name: message_factory.GetMessageClass(each) for name, each in own.items()}

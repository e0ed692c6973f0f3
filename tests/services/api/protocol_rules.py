"""Rules that the protocol keeps, on descriptors of its files: how things are called, and what may never change.

The rules are those of buf's categories STANDARD, COMMENTS (but for fields) and FILE, as far as they can apply here.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

PROTO = Path(__file__).resolve().parents[3] / "proto"
BASELINE = PROTO / "v1-baseline.binpb"

_PASCAL = re.compile(r"^[A-Z][A-Za-z0-9]*$")
_SNAKE = re.compile(r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$")
_UPPER = re.compile(r"^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$")
_VERSION = re.compile(r"\.v[1-9]\d*((alpha|beta)[1-9]\d*)?$")
_PATHS = {"message": 4, "enum": 5, "service": 6, "nested": 3, "nested enum": 4, "rpc": 2}


def describe(folder: Path = PROTO) -> FileDescriptorSet:
    """What protoc says of the files of a folder, comments included."""
    from grpc_tools import protoc

    shipped = Path(protoc.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as room:
        out = Path(room) / "all.binpb"
        command = ["protoc", f"-I{folder}", f"-I{shipped}", f"--descriptor_set_out={out}", "--include_source_info"]
        assert protoc.main([*command, *map(str, sorted(folder.rglob("*.proto")))]) == 0
        return FileDescriptorSet.FromString(out.read_bytes())


def baseline() -> FileDescriptorSet:
    """What was promised, without the files of others that it imports."""
    files = FileDescriptorSet.FromString(BASELINE.read_bytes())
    return FileDescriptorSet(file=[file for file in files.file if file.package.startswith("goffish.")])


def lint(files: FileDescriptorSet) -> list[str]:
    """What is wrong with names and comments, a line each."""
    return [problem for file in files.file for problem in _lint_file(file)] + _lint_uses(files)


def _lint_file(file: FileDescriptorProto) -> Iterator[str]:
    path = PurePosixPath(file.name)
    said = {tuple(one.path): one.leading_comments.strip() for one in file.source_code_info.location}
    if file.syntax != "proto3":
        yield f"{file.name}: its syntax is not proto3"
    if not _VERSION.search(file.package):
        yield f"{file.name}: package {file.package} does not end in a version"
    if str(path.parent) != file.package.replace(".", "/"):
        yield f"{file.name}: package {file.package} is not its folder"
    if not _SNAKE.match(path.stem):
        yield f"{file.name}: not lower_snake_case"
    if file.public_dependency or file.weak_dependency:
        yield f"{file.name}: a public or weak import"
    for at, message in enumerate(file.message_type):
        yield from _lint_message(message, (_PATHS["message"], at), said)
    for at, enum in enumerate(file.enum_type):
        yield from _lint_enum(enum, (_PATHS["enum"], at), said)
    for at, service in enumerate(file.service):
        place = (_PATHS["service"], at)
        yield from _named(service.name, _PASCAL, "service", "PascalCase")
        yield from _commented(service.name, place, said)
        if not service.name.endswith("Service"):
            yield f"{service.name}: a service without the ending Service"
        for number, rpc in enumerate(service.method):
            yield from _named(rpc.name, _PASCAL, "rpc", "PascalCase")
            yield from _commented(f"{service.name}.{rpc.name}", (*place, _PATHS["rpc"], number), said)
            for kind, used in (("Request", rpc.input_type), ("Response", rpc.output_type)):
                if _short(used) not in (f"{rpc.name}{kind}", f"{service.name}{rpc.name}{kind}"):
                    yield f"{service.name}.{rpc.name}: {_short(used)} is not called {rpc.name}{kind}"


def _lint_message(message: DescriptorProto, place: tuple[int, ...], said: dict[tuple[int, ...], str]) -> Iterator[str]:
    if message.options.map_entry:
        return
    yield from _named(message.name, _PASCAL, "message", "PascalCase")
    yield from _commented(message.name, place, said)
    for field in message.field:
        yield from _named(field.name, _SNAKE, f"field of {message.name}", "lower_snake_case")
    for one in message.oneof_decl:
        if not one.name.startswith("_"):  # those of optional fields are protoc's
            yield from _named(one.name, _SNAKE, f"oneof of {message.name}", "lower_snake_case")
    for at, nested in enumerate(message.nested_type):
        yield from _lint_message(nested, (*place, _PATHS["nested"], at), said)
    for at, enum in enumerate(message.enum_type):
        yield from _lint_enum(enum, (*place, _PATHS["nested enum"], at), said)


def _lint_enum(enum: EnumDescriptorProto, place: tuple[int, ...], said: dict[tuple[int, ...], str]) -> Iterator[str]:
    yield from _named(enum.name, _PASCAL, "enum", "PascalCase")
    yield from _commented(enum.name, place, said)
    if enum.options.allow_alias:
        yield f"{enum.name}: two names for a value"
    prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", enum.name).upper() + "_"
    for value in enum.value:
        yield from _named(value.name, _UPPER, f"value of {enum.name}", "UPPER_SNAKE_CASE")
        if not value.name.startswith(prefix):
            yield f"{value.name}: a value without the prefix {prefix}"
        if value.number == 0 and not value.name.endswith("_UNSPECIFIED"):
            yield f"{value.name}: the value 0 without the ending _UNSPECIFIED"


def _lint_uses(files: FileDescriptorSet) -> list[str]:
    rpcs = [rpc for file in files.file for service in file.service for rpc in service.method]
    uses = Counter(used for rpc in rpcs for used in (rpc.input_type, rpc.output_type))
    return [f"{_short(used)}: of {count} rpcs" for used, count in uses.items() if count > 1]


def _named(name: str, form: re.Pattern[str], what: str, called: str) -> Iterator[str]:
    if not form.match(name):
        yield f"{name}: the {what} is not {called}"


def _commented(name: str, place: tuple[int, ...], said: dict[tuple[int, ...], str]) -> Iterator[str]:
    if not said.get(place):
        yield f"{name}: has no comment"


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def breaking(old: FileDescriptorSet, new: FileDescriptorSet) -> list[str]:
    """What a client of the old protocol would stumble over, a line each."""
    found: list[str] = []
    for before, after, name in _pairs(old.file, new.file, "", found):
        if before.package != after.package:
            found.append(f"{name}: package {before.package} became {after.package}")
        _compare_types(before, after, f"{before.package}.", found)
        for one, other, service in _pairs(before.service, after.service, f"{before.package}.", found):
            for rpc, now, place in _pairs(one.method, other.method, f"{service}.", found):
                found += _changed(rpc, now, place, "input_type", "output_type", "client_streaming", "server_streaming")
    return found


def _compare_types(before: Any, after: Any, prefix: str, found: list[str]) -> None:
    """Messages and enums of a file, or of a message."""
    nested = isinstance(before, DescriptorProto)
    messages = (before.nested_type, after.nested_type) if nested else (before.message_type, after.message_type)
    for one, other, name in _pairs(*messages, prefix, found):
        _compare_fields(one, other, name, found)
        found += _reserved(one, other, name)
        _compare_types(one, other, f"{name}.", found)
    for one, other, name in _pairs(before.enum_type, after.enum_type, prefix, found):
        values = {value.number: value.name for value in other.value}
        for value in one.value:
            now = values.get(value.number)
            if now != value.name:
                found.append(f"{name}: {value.name} = {value.number} became {now or 'nothing'}")
        found += _reserved(one, other, name)


def _compare_fields(one: DescriptorProto, other: DescriptorProto, name: str, found: list[str]) -> None:
    fields = {field.number: field for field in other.field}
    for field in one.field:
        place, now = f"{name}.{field.name}", fields.get(field.number)
        if now is None:
            found.append(f"{place} = {field.number}: deleted")
            continue
        found += _changed(field, now, place, "name", "json_name", "type", "type_name", "label", "proto3_optional")
        if _oneof(one, field) != _oneof(other, now):
            found.append(f"{place}: oneof {_oneof(one, field)} became {_oneof(other, now)}")


def _oneof(message: DescriptorProto, field: FieldDescriptorProto) -> str | None:
    told = field.HasField("oneof_index") and not field.proto3_optional
    return message.oneof_decl[field.oneof_index].name if told else None


def _reserved(one: Any, other: Any, name: str) -> list[str]:
    kept = {(span.start, span.end) for span in other.reserved_range}
    gone = [f"{span.start}" for span in one.reserved_range if (span.start, span.end) not in kept]
    gone += [text for text in one.reserved_name if text not in other.reserved_name]
    return [f"{name}: {what} is not reserved any more" for what in gone]


def _changed(before: Any, after: Any, place: str, *attributes: str) -> list[str]:
    return [
        f"{place}: {attribute} {getattr(before, attribute)} became {getattr(after, attribute)}"
        for attribute in attributes
        if getattr(before, attribute) != getattr(after, attribute)
    ]


def _pairs(
    before: Iterable[Any], after: Iterable[Any], prefix: str, found: list[str]
) -> Iterator[tuple[Any, Any, str]]:
    """What has the same name; what has none any more is a problem."""
    now = {one.name: one for one in after}
    for one in before:
        name = f"{prefix}{one.name}"
        if one.name in now:
            yield one, now[one.name], name
        else:
            found.append(f"{name}: deleted")

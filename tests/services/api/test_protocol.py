"""The protocol keeps its rules, and each rule catches what it is there for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet

from tests.services.api.protocol_rules import baseline, breaking, describe, lint

pytest.importorskip("grpc_tools", reason="protoc is not installed: pip install 'grpcio-tools>=1.76,<1.77'")
Change = Callable[[FileDescriptorSet], Any]


@pytest.fixture(scope="module")
def files() -> FileDescriptorSet:
    return describe()


def test_names_and_comments(files: FileDescriptorSet) -> None:
    """Breaks when something of the protocol is called against the rules, or not explained."""
    assert lint(files) == []


def test_nothing_that_was_promised_changes(files: FileDescriptorSet) -> None:
    """Breaks when a client of the protocol as it was promised would not get on with it any more."""
    promised = baseline()
    assert len(promised.file) >= 4 and sum(len(file.message_type) for file in promised.file) > 60
    assert breaking(promised, files) == []


def file_of(files: FileDescriptorSet, name: str) -> Any:
    return next(file for file in files.file if file.name.endswith(f"/{name}.proto"))


def message(files: FileDescriptorSet, name: str) -> Any:
    return next(one for file in files.file for one in file.message_type if one.name == name)


def enum(files: FileDescriptorSet, name: str) -> Any:
    return next(one for file in files.file for one in file.enum_type if one.name == name)


def field(files: FileDescriptorSet, name: str, of: str) -> Any:
    return next(one for one in message(files, of).field if one.name == name)


def rpc(files: FileDescriptorSet, name: str) -> Any:
    return next(one for file in files.file for own in file.service for one in own.method if one.name == name)


def service(files: FileDescriptorSet) -> Any:
    return file_of(files, "jobs").service[0]


def removed(held: Any, at: int = 0) -> None:
    del held[at]


def uncommented(files: FileDescriptorSet, *path: int) -> None:
    for place in file_of(files, "jobs").source_code_info.location:
        if tuple(place.path) == path:
            place.ClearField("leading_comments")


LINTED: list[tuple[str, Change]] = [
    ("does not end in a version", lambda f: setattr(f.file[0], "package", "goffish")),
    ("is not its folder", lambda f: setattr(f.file[0], "package", "goffish.v2")),
    ("not lower_snake_case", lambda f: setattr(f.file[0], "name", "goffish/v1/Jobs.proto")),
    ("is not proto3", lambda f: setattr(f.file[0], "syntax", "proto2")),
    ("a public or weak import", lambda f: f.file[0].public_dependency.append(0)),
    ("a public or weak import", lambda f: f.file[0].weak_dependency.append(0)),
    ("the message is not PascalCase", lambda f: setattr(message(f, "JobSpec"), "name", "job_spec")),
    ("the field of JobSpec is not", lambda f: setattr(field(f, "budget", "JobSpec"), "name", "mostMoney")),
    ("the oneof of JobSpec is not", lambda f: setattr(message(f, "JobSpec").oneof_decl[0], "name", "theWork")),
    ("the enum is not", lambda f: setattr(enum(f, "Runner"), "name", "runner")),
    ("the value of Runner is not", lambda f: setattr(enum(f, "Runner").value[1], "name", "RUNNER_Local")),
    ("without the prefix RUNNER_", lambda f: setattr(enum(f, "Runner").value[1], "name", "LOCAL")),
    ("without the prefix JOB_STATE_", lambda f: setattr(enum(f, "JobState").value[1], "name", "JOBSTATE_QUEUED")),
    ("without the ending _UNSPECIFIED", lambda f: setattr(enum(f, "Runner").value[0], "name", "RUNNER_NONE")),
    ("two names for a value", lambda f: setattr(enum(f, "Runner").options, "allow_alias", True)),
    ("the service is not PascalCase", lambda f: setattr(service(f), "name", "jobService")),
    ("without the ending Service", lambda f: setattr(service(f), "name", "Jobs")),
    ("the rpc is not PascalCase", lambda f: setattr(rpc(f, "Submit"), "name", "submit")),
    ("is not called GetRequest", lambda f: setattr(rpc(f, "Get"), "input_type", ".goffish.v1.Job")),
    ("is not called GetResponse", lambda f: setattr(rpc(f, "Get"), "output_type", ".goffish.v1.Job")),
    ("GetRequest: of 2 rpcs", lambda f: setattr(rpc(f, "Cancel"), "input_type", ".goffish.v1.GetRequest")),
    ("JobService: has no comment", lambda f: uncommented(f, 6, 0)),
    ("JobService.Submit: has no comment", lambda f: uncommented(f, 6, 0, 2, 0)),
    ("JobSpec: has no comment", lambda f: uncommented(f, 4, 0)),
    ("Runner: has no comment", lambda f: uncommented(f, 5, 0)),
]  # fmt: skip

BROKEN: list[tuple[str, Change]] = [
    ("jobs.proto: deleted", lambda f: f.file.remove(file_of(f, "jobs"))),
    ("became goffish.v2", lambda f: setattr(f.file[0], "package", "goffish.v2")),
    ("goffish.v1.JobSpec: deleted", lambda f: removed(file_of(f, "jobs").message_type)),
    ("goffish.v1.JobSpec: deleted", lambda f: setattr(message(f, "JobSpec"), "name", "JobSpecs")),
    ("JobSpec.LabelsEntry: deleted", lambda f: removed(message(f, "JobSpec").nested_type)),
    ("JobSpec.graph = 1: deleted", lambda f: removed(message(f, "JobSpec").field)),
    ("JobSpec.budget = 4: deleted", lambda f: setattr(field(f, "budget", "JobSpec"), "number", 99)),
    ("name budget became money", lambda f: setattr(field(f, "budget", "JobSpec"), "name", "money")),
    ("json_name clientKey became key", lambda f: setattr(field(f, "client_key", "Job"), "json_name", "key")),
    ("JobSpec.budget: type", lambda f: setattr(field(f, "budget", "JobSpec"), "type", FieldDescriptorProto.TYPE_FLOAT)),
    ("JobSpec.graph: type_name", lambda f: setattr(field(f, "graph", "JobSpec"), "type_name", ".goffish.v1.Job")),
    ("Job.id: label", lambda f: setattr(field(f, "id", "Job"), "label", FieldDescriptorProto.LABEL_REPEATED)),
    ("budget: proto3_optional", lambda f: setattr(field(f, "budget", "JobSpec"), "proto3_optional", False)),
    ("JobSpec.graph: oneof work became None", lambda f: field(f, "graph", "JobSpec").ClearField("oneof_index")),
    ("JobSpec.graph: oneof work became", lambda f: setattr(message(f, "JobSpec").oneof_decl[0], "name", "task")),
    ("value: type", lambda f: setattr(message(f, "JobSpec").nested_type[0].field[1], "type", 3)),
    ("goffish.v1.Runner: deleted", lambda f: file_of(f, "jobs").enum_type.remove(enum(f, "Runner"))),
    ("RUNNER_MPI = 2 became nothing", lambda f: removed(enum(f, "Runner").value, 2)),
    ("RUNNER_MPI = 2 became RUNNER_X", lambda f: setattr(enum(f, "Runner").value[2], "name", "RUNNER_X")),
    ("goffish.v1.JobService: deleted", lambda f: removed(file_of(f, "jobs").service)),
    ("goffish.v1.JobService.Submit: deleted", lambda f: removed(service(f).method)),
    ("Get: input_type", lambda f: setattr(rpc(f, "Get"), "input_type", ".goffish.v1.ListRequest")),
    ("Get: output_type", lambda f: setattr(rpc(f, "Get"), "output_type", ".goffish.v1.Job")),
    ("Upload: client_streaming", lambda f: setattr(rpc(f, "Upload"), "client_streaming", False)),
    ("Watch: server_streaming", lambda f: setattr(rpc(f, "Watch"), "server_streaming", False)),
]  # fmt: skip


def changed(files: FileDescriptorSet, change: Change) -> FileDescriptorSet:
    made = FileDescriptorSet()
    made.CopyFrom(files)
    change(made)
    return made


@pytest.mark.parametrize(("problem", "change"), LINTED, ids=[problem for problem, _ in LINTED])
def test_each_rule_of_names_and_comments(files: FileDescriptorSet, problem: str, change: Change) -> None:
    assert any(problem in told for told in lint(changed(files, change)))


@pytest.mark.parametrize(("problem", "change"), BROKEN, ids=[problem for problem, _ in BROKEN])
def test_each_rule_of_promises(files: FileDescriptorSet, problem: str, change: Change) -> None:
    assert any(problem in told for told in breaking(files, changed(files, change)))


def test_reserved_stays_reserved(files: FileDescriptorSet) -> None:
    """Breaks when a number or a name that was given up could be given again."""
    old, none = changed(files, lambda f: message(f, "Job").reserved_name.append("gone")), files
    message(old, "Job").reserved_range.add(start=50, end=51)
    enum(old, "Runner").reserved_range.add(start=60, end=60)
    assert breaking(old, none) == [
        "goffish.v1.Job: 50 is not reserved any more", "goffish.v1.Job: gone is not reserved any more",
        "goffish.v1.Runner: 60 is not reserved any more",
    ]  # fmt: skip
    assert breaking(old, old) == []


def test_what_is_added_breaks_nothing(files: FileDescriptorSet) -> None:
    """Breaks when the protocol could not grow: fields, values, messages and rpcs that are new harm nobody."""
    new = changed(files, lambda f: message(f, "Job").field.add(name="more", number=1000, type=9, label=1))
    enum(new, "Runner").value.add(name="RUNNER_MORE", number=1000)
    file_of(new, "jobs").message_type.add(name="More")
    service(new).method.add(name="More", input_type=".goffish.v1.More", output_type=".goffish.v1.Job")
    assert breaking(files, new) == []

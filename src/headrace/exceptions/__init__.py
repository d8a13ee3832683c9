"""Every error that headrace raises, in one tree.

HeadraceError
├── UserError                 wrong input; never retried
│   ├── FlowNotFoundError, FlowImportError, TaskNotFoundError
│   ├── ProjectNotFoundError, StateFolderError, TargetFolderError
│   ├── ProfileError          └── UnknownKeyError
│   ├── ProfileNotFoundError, ProfileEngineError, EnvironmentNotFoundError, SecretError
│   ├── ParameterError, TaskDefinitionError, ResultError
│   ├── WriteRequestError
│   ├── TaskImportError, ArgumentError
│   ├── VersionMismatchError, CodeTooLargeError, JobStorageError
│   ├── FilterError, ColumnNotFoundError, ReadRequestError
│   ├── LedgerAddressError, LedgerTooNewError, RunNotFoundError, RunBusyError
│   ├── RepairConflictError, NothingToRepairError, TriggerTakenError
│   ├── TriggerDefinitionError, TriggerNotFoundError
│   ├── MlRequestError, NestedLayersError, DataTooLargeError
│   ├── GroupsTooLargeError, ModelSignatureError
│   └── (feature modules add theirs below these)
├── EngineError               infrastructure; a retry may help
│   ├── JavaNotFoundError, JarsUnavailableError, PortInUseError, ServerStartError
│   ├── ConcurrentWriteError, CommitUnclearError
│   ├── EngineNotInstalledError, EngineStartError
│   ├── CpusBusyError, WorkersLostError
│   ├── LedgerUnavailableError, LeaseLostError, SlotsFullError
│   ├── StorageRefreshError, StorageAccessError, RunTrackingError
│   └── TaskCrashedError      ├── MemoryLimitError, TaskTimeoutError, TaskCancelledError
│                             └── DiskFullError
├── TaskFailedError           the task's own code raised an error; `retryable` says the rest
│   └── UpstreamFailedError   the task did not start, because of how others ended
├── RunFailedError            a run ended without success
└── DataError                 table, version or schema
    ├── TableNotFoundError, VersionNotFoundError, LogIncompleteError, LogCorruptError
    ├── UnsupportedTableError, UnreadableColumnError, ChangesUnavailableError
    ├── SnapshotExpiredError, UnreadableFileError, RowCountError
    ├── UnsupportedWriteError, UnwritableTypeError, SchemaMismatchError
    └── ConstraintViolatedError, CommitExpiredError, ReusedTableGoneError, BadRowsError

Each text has three lines: what happened with its names; what was found or is allowed; something
to paste.
Values are attributes, and an error pickles between processes with them.
A module of this package holds a family of errors; all of them are imported from here.
"""

from __future__ import annotations

from headrace.exceptions.base import (
    DataError,
    EngineError,
    HeadraceError,
    UserError,
    closest,
    error_bases,
    full_name,
    lines,
)
from headrace.exceptions.engines import (
    CodeTooLargeError,
    EngineNotInstalledError,
    EngineStartError,
    JarsUnavailableError,
    JavaNotFoundError,
    JobStorageError,
    VersionMismatchError,
)
from headrace.exceptions.flows import (
    FlowImportError,
    FlowNotFoundError,
    ParameterError,
    PortInUseError,
    RunTrackingError,
    ServerStartError,
    TaskDefinitionError,
    TaskNotFoundError,
)
from headrace.exceptions.ml import (
    BadRowsError,
    DataTooLargeError,
    GroupsTooLargeError,
    MlRequestError,
    ModelSignatureError,
    NestedLayersError,
    WorkersLostError,
)
from headrace.exceptions.projects import (
    EnvironmentNotFoundError,
    ProfileEngineError,
    ProfileError,
    ProfileNotFoundError,
    ProjectNotFoundError,
    SecretError,
    StateFolderError,
    StorageAccessError,
    StorageRefreshError,
    TargetFolderError,
    UnknownKeyError,
)
from headrace.exceptions.reading import (
    ChangesUnavailableError,
    ColumnNotFoundError,
    CpusBusyError,
    FilterError,
    LogCorruptError,
    LogIncompleteError,
    ReadRequestError,
    RowCountError,
    RowCountWarning,
    SnapshotExpiredError,
    TableNotFoundError,
    UnreadableColumnError,
    UnreadableFileError,
    UnsupportedTableError,
    VersionNotFoundError,
)
from headrace.exceptions.runs import (
    LeaseLostError,
    LedgerAddressError,
    LedgerTooNewError,
    LedgerUnavailableError,
    NothingToRepairError,
    RepairConflictError,
    ReusedTableGoneError,
    RunBusyError,
    RunFailedError,
    RunNotFoundError,
    SlotsFullError,
)
from headrace.exceptions.tasks import (
    ArgumentError,
    DiskFullError,
    MemoryLimitError,
    ResultError,
    TaskCancelledError,
    TaskCrashedError,
    TaskFailedError,
    TaskImportError,
    TaskTimeoutError,
    UpstreamFailedError,
)
from headrace.exceptions.triggers import (
    TriggerDefinitionError,
    TriggerNotFoundError,
    TriggerTakenError,
)
from headrace.exceptions.writing import (
    CommitExpiredError,
    CommitUnclearError,
    ConcurrentWriteError,
    ConstraintViolatedError,
    SchemaMismatchError,
    UnsupportedWriteError,
    UnwritableTypeError,
    WriteRequestError,
)

__all__ = [
    "ArgumentError",
    "BadRowsError",
    "ChangesUnavailableError",
    "CodeTooLargeError",
    "ColumnNotFoundError",
    "CommitExpiredError",
    "CommitUnclearError",
    "ConcurrentWriteError",
    "ConstraintViolatedError",
    "CpusBusyError",
    "DataError",
    "DataTooLargeError",
    "DiskFullError",
    "EngineError",
    "EngineNotInstalledError",
    "EngineStartError",
    "EnvironmentNotFoundError",
    "FilterError",
    "FlowImportError",
    "FlowNotFoundError",
    "GroupsTooLargeError",
    "HeadraceError",
    "JarsUnavailableError",
    "JavaNotFoundError",
    "JobStorageError",
    "LeaseLostError",
    "LedgerAddressError",
    "LedgerTooNewError",
    "LedgerUnavailableError",
    "LogCorruptError",
    "LogIncompleteError",
    "MemoryLimitError",
    "MlRequestError",
    "ModelSignatureError",
    "NestedLayersError",
    "NothingToRepairError",
    "ParameterError",
    "PortInUseError",
    "ProfileEngineError",
    "ProfileError",
    "ProfileNotFoundError",
    "ProjectNotFoundError",
    "ReadRequestError",
    "RepairConflictError",
    "ResultError",
    "ReusedTableGoneError",
    "RowCountError",
    "RowCountWarning",
    "RunBusyError",
    "RunFailedError",
    "RunNotFoundError",
    "RunTrackingError",
    "SchemaMismatchError",
    "SecretError",
    "ServerStartError",
    "SlotsFullError",
    "SnapshotExpiredError",
    "StateFolderError",
    "StorageAccessError",
    "StorageRefreshError",
    "TableNotFoundError",
    "TargetFolderError",
    "TaskCancelledError",
    "TaskCrashedError",
    "TaskDefinitionError",
    "TaskFailedError",
    "TaskImportError",
    "TaskNotFoundError",
    "TaskTimeoutError",
    "TriggerDefinitionError",
    "TriggerNotFoundError",
    "TriggerTakenError",
    "UnknownKeyError",
    "UnreadableColumnError",
    "UnreadableFileError",
    "UnsupportedTableError",
    "UnsupportedWriteError",
    "UnwritableTypeError",
    "UpstreamFailedError",
    "UserError",
    "VersionMismatchError",
    "VersionNotFoundError",
    "WorkersLostError",
    "WriteRequestError",
    "closest",
    "error_bases",
    "full_name",
    "lines",
]

# An error has one name, wherever it is written down: the ledger, `retry_on=`, a pickle.
for _name in __all__:
    if _name.endswith("Error"):
        globals()[_name].__module__ = __name__

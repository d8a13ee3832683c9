"""Open a study, new or again, and say what is best in it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal, cast

from headrace.exceptions import MlRequestError

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial


@functools.cache
def _study_class() -> type[Any]:
    import optuna

    class DrivenStudy(optuna.Study):
        """A study that our driver runs: `stop` works there, which Optuna's refuses."""

        stopped = False

        def stop(self) -> None:
            """Start no more trials; those that run are finished."""
            self.stopped = True

        @property
        def run_id(self) -> str:
            """The study's own MLflow run, where MLflow is its storage."""
            return str(self._study_id)

        def finished(self) -> int:
            """Trials that count: finished ones, except those whose worker or driver was lost."""
            return sum(
                trial.state.is_finished()
                and not trial.user_attrs.keys() & {"headrace.stopped", "headrace.lost"}
                for trial in self.get_trials(deepcopy=False)
            )

    return DrivenStudy


def open_study(
    *,
    name: str | None,
    storage: Any,
    direction: Literal["minimize", "maximize"],
    sampler: BaseSampler | None,
    pruner: BasePruner | None,
    seed: int | None,
    parallel: bool,
    resume: bool,
) -> Any:
    """The study of a search.

    Raises:
        MlRequestError: A study to resume is not there, or a new one's name is taken.
    """
    import optuna

    if sampler is None:
        # Trials that still run count as bad ones, so that workers look in different places.
        sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=parallel)
    place = _storage(storage)
    _check_name(name, place, resume=resume)
    if not resume:
        made = optuna.create_study(study_name=name, storage=place, direction=direction)
        name, place = made.study_name, made._storage  # noqa: SLF001 - in memory it is nowhere else
    study = _study_class()(
        cast("str", name), place, sampler, pruner or optuna.pruners.MedianPruner()
    )
    if resume:
        _end_left(study)
    return study


def _storage(given: Any) -> Any:
    if given != "mlflow":
        return given
    from mlflow.optuna.storage import MlflowStorage
    from mlflow.tracking.fluent import _get_experiment_id

    return MlflowStorage(experiment_id=_get_experiment_id())


def _check_name(name: str | None, storage: Any, *, resume: bool) -> None:
    if resume and (name is None or storage is None):
        raise MlRequestError(
            problem="resume=True needs the study's name and its storage.",
            found=f"name={name!r}, storage={storage!r:.80}.",
            fix='name="delays", storage="sqlite:///studies.db"',
        )
    if name is None or storage is None:
        return
    known = _has_study(storage, name)
    if resume and not known:
        raise MlRequestError(
            problem=f"There is no study {name!r} to resume.",
            found="The storage has none of that name.",
            fix="resume=False starts it",
        )
    if not resume and known:
        raise MlRequestError(
            problem=f"There is a study {name!r} already.",
            found="A new study does not mix its trials with those of another one.",
            fix="resume=True goes on with it; or choose another name",
        )


def _has_study(storage: Any, name: str) -> bool:
    import optuna

    # MLflow's storage can't list its studies once one of them has a trial.
    find = getattr(storage, "get_study_id_by_name_if_exists", None)
    if find is not None:
        return find(name) is not None
    return name in optuna.get_all_study_names(storage)


def _end_left(study: Any) -> None:
    """Fail the trials that a driver has left running when it crashed."""
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study._storage.set_trial_user_attr(trial._trial_id, "headrace.stopped", "crash")  # noqa: SLF001
        study.tell(trial.number, state=TrialState.FAIL)


def end_study_run(study: Any, *, ended_well: bool) -> None:
    """End the MLflow run of a study that MLflow's storage keeps; it leaves it open by itself."""
    import mlflow

    study._storage.flush_all_batches()  # noqa: SLF001
    mlflow.MlflowClient().set_terminated(study.run_id, "FINISHED" if ended_well else "KILLED")


def best_of(study: Any) -> FrozenTrial | None:
    """The best finished trial, or None when none has finished."""
    from optuna.trial import TrialState

    if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        return None
    return cast("FrozenTrial", study.best_trial)

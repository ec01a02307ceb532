"""The protocol of one archive's run as states and steps, small enough to explore every order.

Two members, each one task; members fail never, functions and events do. A state is all that lasts:
the records of the run, its executions, the messages of the queue, the events on their way, and the
functions at work with what they have read. A step is one request of a function, a fault, or an
operator's doing. `explore` visits each state that steps can lead to and says which promise is
broken, with the steps that lead there.

A `Protocol` has switches for what the functions do otherwise than designed. Each is a fault that
the exploration must find: the promises are no formality.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

MEMBERS = 2
WHOLE = frozenset(range(MEMBERS))
NONE, FAILED, COMPLETED = "", "FAILED", "COMPLETED"
MAX_IDLE_ROUNDS = 3


class Function(NamedTuple):
    """One invocation: which function, for which execution, and how far it is."""

    kind: str  # intake, plan, extract, settle, report (of a failed execution)
    execution: int = 0  # from 1; 0: none
    step: int = 0  # requests that it has done
    seen: frozenset[int] = frozenset()  # members that were on record when it looked
    member: int = 0  # of extract
    verdict: str = NONE  # of settle


class State(NamedTuple):
    """All that lasts."""

    listed: bool = False  # rounds/00.jsonl
    planned: bool = False  # run.json
    stopped: bool = False  # stop.json
    outcomes: frozenset[int] = frozenset()  # members on record
    objects: frozenset[int] = frozenset()  # members in the destination
    report: str = NONE
    told: frozenset[str] = frozenset()  # verdicts of events
    messages: int = 1  # in the queue
    letters: int = 0  # dead letters
    executions: tuple[str, ...] = ()  # by number: its state, or how it ended
    events: int = 0  # of failed executions, on their way
    functions: tuple[Function, ...] = ()
    faults: int = 2  # that may still happen
    resumed: int = 1  # times that an operator may still resume
    rounds: int = 0  # since an outcome was added


class Protocol(NamedTuple):
    """What the functions do; each switch is a mistake."""

    late_reports_replace: bool = False  # a failed execution's report is written over any other
    settles_from_memory: bool = False  # the last report is judged by what a function saw first
    outcome_before_object: bool = False
    report_before_outcomes: bool = False  # of a small archive
    plan_before_rounds: bool = False  # an execution goes on with nothing
    consumes_faults: bool = False  # a message whose function was killed is gone
    never_ends: bool = False  # rounds without progress are not counted


class Broken(NamedTuple):
    """A promise that does not hold, and the steps that lead there."""

    promise: str
    steps: tuple[str, ...]


def explore(protocol: Protocol, start: State | None = None) -> tuple[int, Broken | None]:
    """Visit each state; return how many there are, and the first broken promise with its steps."""
    first = start or State()
    came: dict[State, tuple[State, str] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        following = list(steps(protocol, state))
        broken = _broken(state, following)
        if broken:
            return len(came), Broken(broken, _way(came, state))
        for name, after in following:
            if after not in came:
                came[after] = state, name
                waiting.append(after)
                broken = _broken_step(state, after)
                if broken:
                    return len(came), Broken(broken, _way(came, after))
    return len(came), None


def _way(came: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    names = []
    while (before := came[state]) is not None:
        state, name = before
        names.append(name)
    return tuple(reversed(names))


def _broken(state: State, following: list[tuple[str, State]]) -> str:
    """Return the promise that a state breaks."""
    ended = not following  # nothing happens any more
    seen = state.letters or any(one in {"failed", "aborted"} for one in state.executions)
    done = state.report == COMPLETED
    broken = {
        "a plan that is on record is whole": state.planned and not state.listed,
        "a report comes after its outcomes": done and state.outcomes != WHOLE,
        "the object of an outcome is there": state.outcomes - state.objects,
        "COMPLETED means that every member is in the destination": done and state.objects != WHOLE,
        "a run ends after three rounds without progress": state.rounds > MAX_IDLE_ROUNDS,
        "an archive has a report, or an operator can see it": ended and not (state.report or seen),
        "a run that ended has an event": ended and done and not (COMPLETED in state.told or seen),
    }
    return next((promise for promise, is_broken in broken.items() if is_broken), "")


def _broken_step(before: State, after: State) -> str:
    if before.report == COMPLETED and after.report != COMPLETED:
        return "a verdict is never replaced by an older one"
    return ""


def steps(protocol: Protocol, state: State) -> Iterator[tuple[str, State]]:
    """Yield what can happen next, with its name."""
    yield from _outside(state)
    for number, function in enumerate(state.functions):
        others = state.functions[:number] + state.functions[number + 1 :]
        name = f"{function.kind} {function.execution or ''}".strip()
        alone = state._replace(functions=others)
        for what, after, goes_on in _work(protocol, alone, function):
            again = () if goes_on is None else (goes_on,)
            yield f"{name}: {what}", after._replace(functions=_sorted(*after.functions, *again))
        if state.faults:
            fewer = alone._replace(faults=state.faults - 1)
            yield f"{name}: killed", _after_kill(protocol, fewer, function)


def _sorted(*functions: Function) -> tuple[Function, ...]:
    return tuple(sorted(functions, key=lambda one: (*one[:3], sorted(one.seen), *one[4:])))


def _begin(state: State, *functions: Function) -> State:
    return state._replace(functions=_sorted(*state.functions, *functions))


def _outside(state: State) -> Iterator[tuple[str, State]]:
    """Yield what the queue, the event bus and people do."""
    if state.messages and len(state.functions) < 3:
        taken = state._replace(messages=state.messages - 1)
        yield "a message is delivered", _begin(taken, Function("intake"))
        if state.faults:
            twice = state._replace(faults=state.faults - 1)
            yield "a message is delivered twice", _begin(twice, Function("intake"))
    if state.events:
        told = state._replace(events=state.events - 1)
        yield "an execution's failure is told", _begin(told, Function("report"))
    for number, status in enumerate(state.executions, 1):
        if status == "runs" and state.faults:
            fewer = state._replace(faults=state.faults - 1)
            yield f"execution {number} is aborted", _end(fewer, number, "aborted")
    active = "runs" in state.executions
    failed = any(one in {"failed", "aborted"} for one in state.executions)
    if state.resumed and state.executions and failed and not active:
        number = len(state.executions) + 1
        fewer = state._replace(resumed=state.resumed - 1)
        started = fewer._replace(executions=(*state.executions, "runs"), rounds=0)
        yield "an operator resumes", _begin(started, Function("plan", number))
    if state.letters and state.resumed:
        yield (
            "an operator sends a dead letter",
            state._replace(letters=0, messages=1, resumed=state.resumed - 1),
        )


def _end(state: State, number: int, status: str) -> State:
    """End an execution; a failure is told by an event."""
    known = list(state.executions)
    if known[number - 1] != "runs":
        return state
    known[number - 1] = status
    more = status in {"failed", "aborted"}
    return state._replace(executions=tuple(known), events=state.events + more)


def _after_kill(protocol: Protocol, state: State, function: Function) -> State:
    """Return what comes of a killed function: it is repeated, or its execution fails."""
    match function.kind:
        case "intake" if protocol.consumes_faults:
            return state
        case "intake" if state.faults:
            return state._replace(messages=state.messages + 1)
        case "intake":
            return state._replace(letters=1)
        case "report":
            return state._replace(events=state.events + 1)
        case "extract":  # caught: what is left is in the next round
            return _round_over(state, function.execution)
        case _:
            return _end(state, function.execution, "failed")


def _runs(state: State, execution: int) -> bool:
    return state.executions[execution - 1] == "runs"


def _round_over(state: State, execution: int) -> State:
    """Settle a round when its last task has ended."""
    busy = any(one.execution == execution and one.kind == "extract" for one in state.functions)
    if busy or not _runs(state, execution):
        return state
    return _begin(state, Function("settle", execution))


def _next_round(state: State, function: Function) -> State:
    """Begin the tasks of what was not on record when the function looked."""
    if not _runs(state, function.execution):
        return state  # a function of an aborted execution: nobody has its answer
    left = WHOLE - function.seen
    tasks = [Function("extract", function.execution, member=one) for one in sorted(left)]
    return _begin(state._replace(rounds=state.rounds + 1), *tasks)


Work = Iterator[tuple[str, State, Function | None]]


def _work(protocol: Protocol, state: State, function: Function) -> Work:
    """Yield what a function's next request does: the state after it, and the function after it."""
    work: Callable[[Protocol, State, Function], Work] = {
        "intake": _intake,
        "plan": _plan,
        "extract": _extract,
        "settle": _settle,
        "report": _report_failure,
    }[function.kind]
    yield from work(protocol, state, function)


def _on(function: Function, seen: frozenset[int] | None = None) -> Function:
    kept = function.seen if seen is None else seen
    return function._replace(step=function.step + 1, seen=kept)


def _intake(protocol: Protocol, state: State, function: Function) -> Work:
    """Take a message: the archive is small and done here, or its execution is started."""
    match function.step:
        case 0 if state.report == FAILED:
            if "runs" in state.executions:
                yield "the run goes on already", state, None
                return
            number = len(state.executions) + 1
            started = state._replace(executions=(*state.executions, "runs"), rounds=0)
            yield "starts the run again", _begin(started, Function("plan", number)), None
        case 0 if state.report:
            yield (
                "the run is known; tells again",
                state._replace(told=state.told | {state.report}),
                None,
            )
        case 0:
            if not state.executions:
                started = state._replace(executions=("runs",))
                yield "starts the run", _begin(started, Function("plan", 1)), None
            yield "does a small archive", state, _on(function)
        case 1:
            yield "writes the members", state._replace(objects=WHOLE), _on(function)
        case 2 if protocol.report_before_outcomes:
            yield "writes the report", state._replace(report=COMPLETED, rounds=0), _on(function)
        case 2:
            yield "writes the outcomes", state._replace(outcomes=WHOLE), _on(function)
        case 3:
            yield "writes the report", state._replace(report=COMPLETED, rounds=0), _on(function)
        case _:
            yield "sends the event", state._replace(told=state.told | {COMPLETED}), None


def _plan(protocol: Protocol, state: State, function: Function) -> Work:
    """Plan a run, or go on with it: read what is on record and begin a round."""
    match function.step:
        case 0 if not state.planned and protocol.plan_before_rounds:
            yield "writes the plan", state._replace(planned=True), _on(function)
        case 0 if not state.planned:
            yield "writes the round", state._replace(listed=True), _on(function)
        case 0:
            looked = _on(function, state.outcomes)._replace(step=2)
            yield "goes on with a run", state._replace(stopped=False), looked
        case 1:
            planned = state._replace(planned=True, listed=True)
            yield "writes the other", planned, _on(function, state.outcomes)
        case _ if function.seen == WHOLE:
            yield "nothing is left", state, Function("settle", function.execution, 1, WHOLE)
        case _:
            yield "begins a round", _next_round(state, function), None


def _extract(protocol: Protocol, state: State, function: Function) -> Work:
    """Do one task: write the member, then its outcome."""
    objects = state._replace(objects=state.objects | {function.member})
    added = function.member not in state.outcomes
    outcomes = state._replace(
        outcomes=state.outcomes | {function.member}, rounds=0 if added else state.rounds
    )
    order = [objects, outcomes]
    if protocol.outcome_before_object:
        order.reverse()
    match function.step:
        case 0 if state.stopped:
            yield "does not begin", _round_over(state, function.execution), None
        case 0:
            yield "writes the member", order[0], _on(function)
            if state.faults:  # the store does not answer, or a right is missing
                fewer = state._replace(faults=state.faults - 1)
                yield "is refused", _round_over(fewer, function.execution), None
                stopped = fewer._replace(stopped=True)
                yield "stops the run", _round_over(stopped, function.execution), None
        case _:
            yield "writes the outcome", _round_over(order[1], function.execution), None


def _settle(protocol: Protocol, state: State, function: Function) -> Work:
    """Settle a round: look, then begin the next one or write the report and send the event."""
    match function.step:
        case 0:
            yield "looks", state, _on(function, state.outcomes)
        case 1 if function.seen != WHOLE and not state.stopped and _may_go_on(protocol, state):
            yield "begins a round", _next_round(state, function), None
        case 1:
            verdict = COMPLETED if function.seen == WHOLE else FAILED
            yield "judges", state, _on(function)._replace(verdict=verdict)
        case 2:
            verdict = function.verdict
            if verdict == FAILED and state.report and not protocol.settles_from_memory:
                verdict = state.report  # a report that is there is newer than what it saw
            yield "writes the report", state._replace(report=verdict), _on(function)
        case 3:
            yield "sends the event", state._replace(told=state.told | {state.report}), _on(function)
        case _:
            yield "ends", _end(state, function.execution, "ended"), None


def _may_go_on(protocol: Protocol, state: State) -> bool:
    return state.rounds < MAX_IDLE_ROUNDS or protocol.never_ends


def _report_failure(protocol: Protocol, state: State, function: Function) -> Work:
    """Report a failed execution, unless there is a report."""
    match function.step:
        case 0 if state.report and not protocol.late_reports_replace:
            yield "the run has a report", state, None
        case 0:
            yield "writes the report", state._replace(report=FAILED), _on(function)
        case _:
            yield "sends the event", state._replace(told=state.told | {FAILED}), None

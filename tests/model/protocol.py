"""The protocol of one archive's run as states and steps, small enough to explore every order.

Two members, each one task; members fail never, functions and events do. A state is all that lasts:
the records of the run, its executions, the messages of the queue, the events on their way, and the
functions at work with what they have read. A step is one request of a function, a fault, or an
operator's doing. `explore` visits each state that steps can lead to and says which promise is
broken, with the steps that lead there. Sets of members are bits of a number.

A `Protocol` has switches for what the functions do otherwise than designed. Each is a fault that
the exploration must find: the promises are no formality.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

MEMBERS = (1, 2)
WHOLE = 3
NONE, FAILED, COMPLETED = "", "FAILED", "COMPLETED"
MAX_IDLE_ROUNDS = 3


class Function(NamedTuple):
    """One invocation: which function, for which execution, and how far it is."""

    kind: str  # intake, plan, extract, settle, report (of a failed execution)
    execution: int = 0  # from 1; 0: none
    step: int = 0  # requests that it has done
    seen: int = 0  # members that were on record when it looked
    member: int = 0  # of extract
    verdict: str = NONE  # of settle

    def on(self, **changes: int | str) -> "Function":
        """Return the function one request later."""
        return self._replace(step=self.step + 1, **changes)  # type: ignore[arg-type]  # fields


class State(NamedTuple):
    """All that lasts."""

    listed: bool = False  # rounds/00.jsonl
    planned: bool = False  # run.json
    stopped: bool = False  # stop.json
    outcomes: int = 0  # members on record
    objects: int = 0  # members in the destination
    report: str = NONE
    told: bool = False  # that the run is COMPLETED
    messages: int = 1  # in the queue
    letters: int = 0  # dead letters
    executions: tuple[str, ...] = ()  # by number: its state, or how it ended
    events: int = 0  # of failed executions, on their way
    functions: tuple[Function, ...] = ()
    faults: int = 2  # that may still happen
    resumed: int = 1  # times that an operator may still resume
    rounds: int = 0  # since an outcome was added

    def begin(self, *functions: Function) -> "State":
        """Return the state in which more functions are at work."""
        return self._replace(functions=tuple(sorted(self.functions + functions)))

    def execute(self) -> "State":
        """Return the state in which one more execution has begun, with its plan."""
        executions = (*self.executions, "runs")
        started = self._replace(executions=executions, rounds=0)
        return started.begin(Function("plan", len(executions)))

    def end(self, number: int, status: str) -> "State":
        """Return the state in which an execution has ended; a failure is told by an event."""
        if not self.runs(number):
            return self
        known = (*self.executions[: number - 1], status, *self.executions[number:])
        return self._replace(executions=known, events=self.events + (status != "ended"))

    def runs(self, number: int) -> bool:
        """Say whether an execution has not ended."""
        return self.executions[number - 1] == "runs"

    def announce(self) -> "State":
        """Return the state in which the event of its report is sent."""
        return self._replace(told=self.told or self.report == COMPLETED)


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


def explore(protocol: Protocol, start: State) -> tuple[int, Broken | None]:
    """Visit each state; return how many there are, and the first broken promise with its steps."""
    came: dict[State, tuple[State, str] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        following = list(steps(protocol, state))
        broken = next(_broken(state, ended=not following), "")
        for name, after in () if broken else following:
            if after not in came:
                came[after] = state, name
                waiting.append(after)
                if state.report == COMPLETED != after.report:
                    state, broken = after, "a verdict is never replaced by an older one"
                    break
        if broken:
            return len(came), Broken(broken, _way(came, state))
    return len(came), None


def _way(came: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    names = []
    while (before := came[state]) is not None:
        state, name = before
        names.append(name)
    return tuple(reversed(names))


def _broken(state: State, *, ended: bool) -> Iterator[str]:
    """Yield the promises that a state breaks; `ended`: nothing happens any more."""
    done = state.report == COMPLETED
    if state.planned and not state.listed:
        yield "a plan that is on record is whole"
    if done and state.outcomes != WHOLE:
        yield "a report comes after its outcomes"
    if state.outcomes & ~state.objects:
        yield "the object of an outcome is there"
    if done and state.objects != WHOLE:
        yield "COMPLETED means that every member is in the destination"
    if state.rounds > MAX_IDLE_ROUNDS:
        yield "a run ends after three rounds without progress"
    if ended and not (state.letters or {"failed", "aborted"} & {*state.executions}):
        if not state.report:
            yield "an archive has a report, or an operator can see it"
        if done and not state.told:
            yield "a run that ended has an event"


def steps(protocol: Protocol, state: State) -> Iterator[tuple[str, State]]:
    """Yield what can happen next, with its name."""
    yield from _outside(state)
    for number, function in enumerate(state.functions):
        others = state.functions[:number] + state.functions[number + 1 :]
        alone = state._replace(functions=others)
        for what, after, goes_on in WORK[function.kind](protocol, alone, function):
            yield f"{function.kind} {what}", after if goes_on is None else after.begin(goes_on)
        if state.faults:
            fewer = alone._replace(faults=state.faults - 1)
            yield f"{function.kind} is killed", _after_kill(protocol, fewer, function)


def _outside(state: State) -> Iterator[tuple[str, State]]:
    """Yield what the queue, the event bus and people do."""
    fewer = state._replace(faults=state.faults - 1)
    again = state._replace(resumed=state.resumed - 1)
    if state.messages and len(state.functions) < 3:
        intake, left = Function("intake"), state.messages - 1
        yield "a message is delivered", state._replace(messages=left).begin(intake)
        if state.faults:
            yield "a message is delivered twice", fewer.begin(intake)
    if state.events:
        told = state._replace(events=state.events - 1)
        yield "an execution's failure is told", told.begin(Function("report"))
    for number in range(1, len(state.executions) + 1):
        if state.faults and state.runs(number):
            yield "an execution is aborted", fewer.end(number, "aborted")
    failed = {"failed", "aborted"} & {*state.executions}
    if state.resumed and failed and "runs" not in state.executions:
        yield "an operator resumes", again.execute()
    if state.resumed and state.letters:
        yield "an operator sends a dead letter", again._replace(letters=0, messages=1)


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
    return state.end(function.execution, "failed")


def _round_over(state: State, execution: int) -> State:
    """Settle a round when its last task has ended."""
    busy = any(one.execution == execution and one.kind == "extract" for one in state.functions)
    if busy or not state.runs(execution):
        return state
    return state.begin(Function("settle", execution))


def _next_round(state: State, function: Function) -> State:
    """Begin the tasks of what was not on record when the function looked."""
    if not state.runs(function.execution):
        return state  # a function of an aborted execution: nobody has its answer
    left = (member for member in MEMBERS if not function.seen & member)
    tasks = (Function("extract", function.execution, member=member) for member in left)
    return state._replace(rounds=state.rounds + 1).begin(*tasks)


# What a function's next request does: the state after it, and the function after it.
Work = Iterator[tuple[str, State, Function | None]]


def _intake(protocol: Protocol, state: State, function: Function) -> Work:
    """Take a message: the archive is small and done here, or its execution is started."""
    reported = state._replace(report=COMPLETED, rounds=0)
    match function.step:
        case 0 if state.report == FAILED:
            again = state if "runs" in state.executions else state.execute()
            yield "lets the run go on", again, None
        case 0 if state.report:
            yield "tells again", state.announce(), None
        case 0:
            if not state.executions:
                yield "starts the run", state.execute(), None
            yield "does a small archive", state, function.on()
        case 1:
            yield "writes the members", state._replace(objects=WHOLE), function.on()
        case 2 if not protocol.report_before_outcomes:
            yield "writes the outcomes", state._replace(outcomes=WHOLE), function.on()
        case 2 | 3:
            yield "writes the report", reported, function.on()
        case _:
            yield "sends the event", state._replace(told=True), None


def _plan(protocol: Protocol, state: State, function: Function) -> Work:
    """Plan a run, or go on with it: read what is on record and begin a round."""
    match function.step:
        case 0 if not state.planned and protocol.plan_before_rounds:
            yield "writes the plan", state._replace(planned=True), function.on()
        case 0 if not state.planned:
            yield "writes the round", state._replace(listed=True), function.on()
        case 0:
            looked = function._replace(step=2, seen=state.outcomes)
            yield "goes on with a run", state._replace(stopped=False), looked
        case 1:
            planned = state._replace(planned=True, listed=True)
            yield "writes the other", planned, function.on(seen=state.outcomes)
        case _ if function.seen == WHOLE:
            yield "finds nothing left", state, Function("settle", function.execution, 1, WHOLE)
        case _:
            yield "begins a round", _next_round(state, function), None


def _extract(protocol: Protocol, state: State, function: Function) -> Work:
    """Do one task: write the member, then its outcome."""
    execution, member = function.execution, function.member
    rounds = state.rounds if state.outcomes & member else 0
    order = [
        state._replace(objects=state.objects | member),
        state._replace(outcomes=state.outcomes | member, rounds=rounds),
    ]
    if protocol.outcome_before_object:
        order.reverse()
    if function.step:
        yield "writes the outcome", _round_over(order[1], execution), None
    elif state.stopped:
        yield "does not begin", _round_over(state, execution), None
    else:
        yield "writes the member", order[0], function.on()
        if state.faults:  # the store does not answer, or a right is missing
            fewer = state._replace(faults=state.faults - 1)
            yield "is refused", _round_over(fewer, execution), None
            yield "stops the run", _round_over(fewer._replace(stopped=True), execution), None


def _settle(protocol: Protocol, state: State, function: Function) -> Work:
    """Settle a round: look, then begin the next one or write the report and send the event."""
    match function.step:
        case 0:
            yield "looks", state, function.on(seen=state.outcomes)
        case 1:
            may_go_on = state.rounds < MAX_IDLE_ROUNDS or protocol.never_ends
            if function.seen != WHOLE and not state.stopped and may_go_on:
                yield "begins a round", _next_round(state, function), None
            else:
                verdict = COMPLETED if function.seen == WHOLE else FAILED
                yield "judges", state, function.on(verdict=verdict)
        case 2:
            verdict = function.verdict
            if verdict == FAILED and state.report and not protocol.settles_from_memory:
                verdict = state.report  # a report that is there is newer than what it saw
            yield "writes the report", state._replace(report=verdict), function.on()
        case 3:
            yield "sends the event", state.announce(), function.on()
        case _:
            yield "ends", state.end(function.execution, "ended"), None


def _report(protocol: Protocol, state: State, function: Function) -> Work:
    """Report a failed execution, unless there is a report."""
    if function.step:
        yield "sends the event", state, None
    elif state.report and not protocol.late_reports_replace:
        yield "finds a report", state, None
    else:
        yield "writes the report", state._replace(report=FAILED), function.on()


WORK: dict[str, Callable[[Protocol, State, Function], Work]] = {
    "intake": _intake,
    "plan": _plan,
    "extract": _extract,
    "settle": _settle,
    "report": _report,
}

"""The devices that a search has given out so far, and whether the search may give one more."""

from __future__ import annotations

from gangline.dra.problem import MISSING, UNKNOWN, Choice, Mask, NodeProblem


class Violation(Exception):
    """A request asks for all devices, and one of these devices breaks a constraint: the search ends."""

    def __init__(self, choice: int, position: int) -> None:
        super().__init__(choice, position)
        self.choice = choice
        self.position = position


class Holding:
    """Devices given out so far. `give` adds one and `take_back` removes the last."""

    __slots__ = (
        "_problem",
        "_rules",
        "_shares",
        "capacities",
        "counters",
        "given",
        "held",
        "held_by",
        "marks",
        "numbers",
        "shared",
    )

    def __init__(self, problem: NodeProblem) -> None:
        self._problem = problem
        self._rules = [
            [[rule for rule in enumerate(rules) if choice in rule[1].choices] for choice in range(len(problem.choices))]
            for rules in problem.rules
        ]
        self._shares: list[int] = [0] * problem.size
        self.given: list[tuple[int, int, int, bool]] = []
        """Claim, choice, position, and whether counters were reserved, in order."""
        self.held = 0
        """Devices that a claim has for itself."""
        self.shared = 0
        """Shareable devices with new shares; their counters are not counted again."""
        self.held_by: list[int] = [0] * len(problem.requests)
        """By claim: the devices of `held` that the claim has."""
        self.counters = list(problem.counters_left)
        self.capacities = list(problem.capacities_left)
        self.numbers: list[int] = [0] * len(problem.requests)
        """By claim: how many devices the claim has."""
        self.marks: list[list[tuple[int, dict[int, int]]]] = [[(0, {}) for _ in rules] for rules in problem.rules]
        """By claim and rule: how many devices the rule has accepted, and the values that it remembers. A rule for equal
        values remembers one value, under 0; a rule for distinct values remembers one value for each request."""

    def kept_from(self, claim: int, choice: Choice) -> Mask:
        """The devices that this choice may not be given, because a claim has them.

        A request with admin access may be given the devices of other claims, but no device of its claim twice.
        """
        return self.held_by[claim] if choice.is_admin else self.held

    def has_capacity(self, choice: Choice, position: int) -> bool:
        """Whether the capacities of a device suffice for another share."""
        capacities = self.capacities
        return all(amount <= capacities[index] for index, amount in choice.consumes[position])

    def give(self, claim: int, number: int, position: int, is_wanted: bool) -> bool:
        """Give the device at a position to a claim, for the choice with this number, if the device is free and no rule
        or amount forbids it. Returns whether the device was given.

        With `is_wanted` the claim must have exactly this device: a rule that forbids the device raises Violation.
        """
        problem = self._problem
        choice = problem.choices[number]
        if self.kept_from(claim, choice) >> position & 1:
            return False
        is_shared = problem.shareable >> position & 1
        consumed = problem.counters[position]
        reserves = bool(consumed) and not (is_shared and (self.shared | problem.in_use) >> position & 1)
        if reserves:
            counters = self.counters
            if any(amount > counters[index] for index, amount in consumed):
                return False
            for index, amount in consumed:
                counters[index] -= amount
        rules = self._rules[claim][number]
        for seen, (index, rule) in enumerate(rules):
            if not self._add(claim, index, rule.is_distinct, choice.base, rule.values[position]):
                self._withdraw(claim, number, position, seen, reserves)
                if is_wanted:
                    raise Violation(number, position)
                return False
        if is_shared:
            if not self.has_capacity(choice, position):
                self._withdraw(claim, number, position, len(rules), reserves)
                return False
            for index, amount in choice.consumes[position]:
                self.capacities[index] -= amount
            self._shares[position] += 1
            self.shared |= 1 << position
        else:
            self.held |= 1 << position
            self.held_by[claim] |= 1 << position
        self.numbers[claim] += 1
        self.given.append((claim, number, position, reserves))
        return True

    def take_back(self) -> None:
        """Undo the last `give`."""
        claim, number, position, reserved = self.given.pop()
        self.numbers[claim] -= 1
        if self._problem.shareable >> position & 1:
            for index, amount in self._problem.choices[number].consumes[position]:
                self.capacities[index] += amount
            self._shares[position] -= 1
            if not self._shares[position]:
                self.shared &= ~(1 << position)
        else:
            self.held_by[claim] &= ~(1 << position)
            if not any(held >> position & 1 for held in self.held_by):
                self.held &= ~(1 << position)
        self._withdraw(claim, number, position, len(self._rules[claim][number]), reserved)

    def _add(self, claim: int, index: int, is_distinct: bool, base: int, value: int) -> bool:
        """Show a device with this value to a rule; returns whether the rule admits the device."""
        if value == MISSING:
            return False
        count, values = self.marks[claim][index]
        if is_distinct:
            if count and values and (value == UNKNOWN or value in values.values()):
                return False
            values[base] = value
        elif not count:
            values[0] = value
        elif value == UNKNOWN or values[0] != value:
            return False
        self.marks[claim][index] = count + 1, values
        return True

    def _withdraw(self, claim: int, number: int, position: int, seen: int, reserved: bool) -> None:
        """Take a device back from the first `seen` rules, and its counters if they were reserved.

        A rule that wants distinct values then forgets the value of the whole request, as kube-scheduler does.
        """
        for index, rule in self._rules[claim][number][:seen]:
            count, values = self.marks[claim][index]
            if rule.is_distinct:
                values.pop(self._problem.choices[number].base, None)
            self.marks[claim][index] = count - 1, values
        if reserved:
            for index, amount in self._problem.counters[position]:
                self.counters[index] += amount

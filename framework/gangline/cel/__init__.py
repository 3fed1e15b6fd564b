"""The expression language of device selectors: CEL in the dialect of Kubernetes.

The way of an expression: `lexing` makes tokens, `parsing` a tree in which `macros` have become loops (`syntax`).
`checking` finds the type of each node (`kinds`, `unifying`) and the overloads of each call (`overloads`, all gathered
in `functions`). `validating` refuses what upstream refuses beyond that. `planning` makes closures of the tree, with
`paths` for selects and `folding` for loops. `program` puts it together: `compile(expression)` is a `Program`,
`program(Device)` is a bool, and `program.reads` says what of a device decides about it (`reading`).

Whatever the text is, the only errors are InvalidExpression, from compiling, and ExpressionFailed, from evaluating.
The length of the text, the nesting, the cost of an evaluation and the length of each value are bounded.
"""

from gangline.cel.program import CelDevice, Program, compile
from gangline.cel.reading import EVERYTHING

__all__ = ["EVERYTHING", "CelDevice", "Program", "compile"]

"""The expression language of device selectors: CEL in the dialect of Kubernetes.

The steps from a text to a verdict: `lexing` makes tokens, and `parsing` a tree in which `macros` have become loops
(`syntax`). `checking` finds the type of each node (`kinds`, `unifying`) and the overloads of each call (`overloads`,
all gathered in `functions`). `validating` refuses some well-typed expressions that Kubernetes refuses. `planning` makes
closures of the tree, with `paths` for selects and `folding` for loops. `program` puts the steps together:
`compile(expression)` is a `Program`, `program(device)` is a bool, and `program.reads` names the fields of a device that
decide about the bool (`reading`).

For every text, the only errors are InvalidExpression, from compiling, and ExpressionFailed, from evaluating.
The length of the text, the nesting, the cost of an evaluation and the length of each value are bounded.
"""

from gangline.cel.program import CelDevice, Program, compile
from gangline.cel.reading import EVERYTHING

__all__ = ["EVERYTHING", "CelDevice", "Program", "compile"]

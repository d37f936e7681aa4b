"""All mutants."""

from __future__ import annotations

from typing import Final

from tests.mutations.format_mutants import FORMAT_MUTANTS
from tests.mutations.kernel_mutants import KERNEL_MUTANTS
from tests.mutations.mutant import Mutant
from tests.mutations.verify_mutants import VERIFY_MUTANTS

MUTANTS: Final[tuple[Mutant, ...]] = (*KERNEL_MUTANTS, *FORMAT_MUTANTS, *VERIFY_MUTANTS)

"""Coverage per kind of module: how many there are, how many ran, every operator of theirs under the table."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from repro_audit.engine.layout import Layout, is_linear, is_norm
from repro_audit.trace.record import ModuleCount

KINDS = ("attentions", "convolutions", "embeddings", "linears", "mlps", "norms", "other")


def kind_of(path: str, module: nn.Module, attentions: frozenset[str], mlps: frozenset[str]) -> str:
    """The kind a module is counted under; ``other`` for the rest of the leaves, empty for mere containers."""
    if path in attentions or isinstance(module, nn.MultiheadAttention):
        return "attentions"
    if path in mlps:
        return "mlps"
    if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return "convolutions"
    if isinstance(module, nn.Embedding):
        return "embeddings"
    if is_linear(module):
        return "linears"
    if is_norm(module):
        return "norms"
    return "" if any(True for _ in module.children()) else "other"


def modules_covered(
    module: nn.Module, layout: Layout | None, executed: frozenset[str]
) -> tuple[ModuleCount, ...]:
    """Counts per kind, in the order of :data:`KINDS`, kinds that the model lacks left out.

    A run that finished had every operator in the table, so a module that ran is covered.
    """
    attentions = frozenset(layout.attentions) if layout else frozenset()
    mlps = frozenset(path for path in layout.mlps if path) if layout else frozenset()

    def kinds() -> Iterator[tuple[str, str]]:
        for path, child in module.named_modules():
            yield path, kind_of(path, child, attentions, mlps)

    totals = dict.fromkeys(KINDS, 0)
    covered = dict.fromkeys(KINDS, 0)
    for path, kind in kinds():
        if kind:
            totals[kind] += 1
            covered[kind] += path in executed
    return tuple(ModuleCount(kind, totals[kind], covered[kind]) for kind in KINDS if totals[kind])

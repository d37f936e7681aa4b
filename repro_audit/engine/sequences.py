"""A sequence in progress, and drawing its tokens on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from repro_kernels.cpu.sampling import sample, top_two
from repro_kernels.errors import NonFiniteError

from repro_audit.errors import InconclusiveError
from repro_audit.settings import Decoding


@dataclass
class Running:
    """A sequence in progress: ``index`` in request order, ``known`` tokens to feed, ``fed`` of them done.

    Attributes:
        index: in request order.
        id: as recorded.
        prompt: its tokens.
        known: tokens to feed: the prompt and what was drawn, except a last one that is never fed.
        replayed: whether all tokens were known beforehand.
        fed: how many of ``known`` went through the model.
        drawn: tokens the sampler gave.
        top2: uint32 [rows, 2, 2] parts, the two largest logits (token id, fp32 bits) of each row of logits.
    """

    index: int
    id: int
    prompt: tuple[int, ...]
    known: list[int]
    replayed: bool
    fed: int = 0
    drawn: list[int] = field(default_factory=list)
    top2: list[npt.NDArray[np.uint32]] = field(default_factory=list)

    def first_logit(self, decoding: Decoding) -> int:
        """The first row whose logits are wanted."""
        return len(self.prompt) - 1 if decoding.max_new_tokens else 0

    def take(self, token: int, decoding: Decoding) -> bool:
        """Note a drawn token; it will be fed unless it is the last one or a stop token. Whether it will."""
        self.drawn.append(token)
        more = len(self.drawn) < decoding.max_new_tokens and token not in decoding.stop_token_ids
        if not self.replayed and more:
            self.known.append(token)
        return more


def draw(logits: torch.Tensor, owners: Sequence[Running], decoding: Decoding) -> None:
    """Draw one token per row, in order; note each row's two largest logits.

    Args:
        logits: [rows, vocabulary] in host memory.
        owners: whose rows they are.
        decoding: how tokens are drawn.

    Raises:
        InconclusiveError: a NaN logit, or none to draw from.
    """
    tops = top_two(logits).numpy().astype(np.uint32)
    if ((tops[:, 0, 1] & 0x7FFFFFFF) > 0x7F800000).any():
        raise InconclusiveError("a logit is NaN", hint="the model overflows on this input")
    for row, item in enumerate(owners):
        item.top2.append(tops[row : row + 1])
        if not decoding.max_new_tokens:
            continue
        position = len(item.prompt) + len(item.drawn)
        try:
            token = sample(
                logits[row],
                temperature=decoding.temperature,
                seed=decoding.seed,
                position=position,
                sequence_id=item.id,
                top_k=decoding.top_k,
                top_p=decoding.top_p,
            )
        except NonFiniteError as error:
            raise InconclusiveError(
                f"{error} of sequence {item.id} at position {position - 1}",
                hint="the model overflows on this input",
            ) from error
        item.take(token, decoding)

"""Fused kernels under the operator table, for modules whose code is, word for word, what the kernel computes.

A fused kernel gives the bits of the operators it stands for; it is chosen by the text of the module's code,
so a version of transformers that writes another sequence is not fused but runs operator by operator. Same
bits either way (tests/property/test_invariance_fused.py).
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

import torch
from repro_kernels.cpu import fused, gemm
from torch import nn

from repro_audit.engine.dispatch import ProfileMode
from repro_audit.engine.storedparam import StoredParameter, stored_of

#: Model types whose attention goes through the engine's own kernel, each of them tested against the eager
#: path.
FAMILIES = frozenset(
    {
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
        "smollm3",
        "phi3",
        "gemma",
        "granite",
        "olmo2",
        "starcoder2",
        "mixtral",
    }
)

ATTENTION = """
def eager_attention_forward(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    key_states = repeat_kv(key, module.num_key_value_groups)
    value_states = repeat_kv(value, module.num_key_value_groups)
    attn_weights = torch.matmul(query, key_states.transpose(2, 3)) * scaling
    if attention_mask is not None:
        attn_weights = attn_weights + attention_mask
    attn_weights = nn.functional.softmax(attn_weights, dim=-1, dtype=torch.float32).to(query.dtype)
    attn_weights = nn.functional.dropout(attn_weights, p=dropout, training=module.training)
    attn_output = torch.matmul(attn_weights, value_states)
    attn_output = attn_output.transpose(1, 2).contiguous()
    return (attn_output, attn_weights)
"""

ROTARY = """
def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
    cos = cos.unsqueeze(unsqueeze_dim)
    sin = sin.unsqueeze(unsqueeze_dim)
    q_embed = q * cos + rotate_half(q) * sin
    k_embed = k * cos + rotate_half(k) * sin
    return (q_embed, k_embed)
"""

ROTATE_HALF = """
def rotate_half(x):
    x1 = x[..., :x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2:]
    return torch.cat((-x2, x1), dim=-1)
"""

RMS_NORM = """
def forward(self, hidden_states):
    input_dtype = hidden_states.dtype
    hidden_states = hidden_states.to(torch.float32)
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
    return self.weight * hidden_states.to(input_dtype)
"""

RMS_NORM_ONE_PLUS = """
def forward(self, x):
    output = self._norm(x.float())
    output = output * (1.0 + self.weight.float())
    return output.type_as(x)
"""

RMS_NORM_INNER = """
def _norm(self, x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
"""

SWIGLU = """
def forward(self, x):
    down_proj = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
    return down_proj
"""


def _normal(tree: ast.AST) -> str:
    """Source text without decorators, annotations, docstrings and comments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list, node.returns = [], None
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1:
                del node.body[0]
        elif isinstance(node, ast.arg):
            node.annotation = None
    return ast.unparse(tree)


@functools.cache
def _expected(text: str) -> str:
    return _normal(ast.parse(text))


@functools.lru_cache(maxsize=512)
def _source(function: Callable[..., Any]) -> str:
    try:
        return _normal(ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))))
    except (OSError, TypeError, SyntaxError):
        return ""


def reads(function: object, text: str) -> bool:
    """Whether a function's source is ``text``, up to decorators, annotations, docstrings and comments."""
    return callable(function) and _source(function) == _expected(text)


def fuses_attention(module: nn.Module) -> bool:
    """Whether attention may run as one kernel: a named family with the standard eager function."""
    config = getattr(module, "config", None)
    file = sys.modules[type(module).__module__]
    return getattr(config, "model_type", None) in FAMILIES and reads(
        getattr(file, "eager_attention_forward", None), ATTENTION
    )


@contextmanager
def fused_modules(module: nn.Module, mode: ProfileMode) -> Iterator[None]:
    """Let linears, RMS norms, gated MLPs and rotary steps run as one kernel each while the context lasts."""
    with ExitStack() as stack:
        files: set[ModuleType] = set()
        for child in module.modules():
            forward = _fused_forward(child, mode)
            if forward is not None and "forward" not in child.__dict__:
                child.__dict__["forward"] = forward
                stack.callback(child.__dict__.pop, "forward")
            files.add(sys.modules[type(child).__module__])
        for file in files:
            original = getattr(file, "apply_rotary_pos_emb", None)
            if (
                original is not None
                and reads(original, ROTARY)
                and reads(getattr(file, "rotate_half", None), ROTATE_HALF)
            ):
                stack.callback(setattr, file, "apply_rotary_pos_emb", original)
                file.apply_rotary_pos_emb = _rotary(mode, original)  # type: ignore[attr-defined]
        yield


def _fused_forward(module: Any, mode: ProfileMode) -> Callable[..., Any] | None:
    kind = type(module)
    if kind is nn.Linear:
        return _linear(module, mode)
    if reads(kind.forward, RMS_NORM):
        return _rms_norm(module, mode, module.variance_epsilon, one_plus=False)
    if reads(kind.forward, RMS_NORM_ONE_PLUS) and reads(getattr(kind, "_norm", None), RMS_NORM_INNER):
        return _rms_norm(module, mode, module.eps, one_plus=True)
    if reads(kind.forward, SWIGLU) and type(module.act_fn).__name__ in ("SiLU", "SiLUActivation"):
        return _swiglu(module, mode)
    return None


def _linear(module: Any, mode: ProfileMode) -> Callable[..., Any]:
    weight = stored_of(module.weight)
    bias = None if module.bias is None else stored_of(module.bias)
    off, count, linear = (
        torch._C._DisableTorchDispatch,
        mode.counter(torch.ops.aten.linear.default),
        gemm.linear,
    )

    def forward(input: torch.Tensor) -> torch.Tensor:
        if type(input) is not torch.Tensor:
            return nn.Linear.forward(module, input)
        with off():
            count.calls += 1
            return linear(input, weight, bias, out_dtype=input.dtype)

    return forward


def _rms_norm(module: Any, mode: ProfileMode, eps: float, *, one_plus: bool) -> Callable[..., Any]:
    weight = module.weight
    if type(weight) is StoredParameter:
        weight = weight.materialise()
    off, kernel = torch._C._DisableTorchDispatch, fused.rms_norm_module
    count = mode.fused("repro_kernels.rms_norm", "fused.rms_norm_module")
    noted = {("aten.add.Tensor", "other", float(eps).hex())}
    if one_plus:
        noted.add(("aten.add.Tensor", "other", (1.0).hex()))

    def norm(x: torch.Tensor) -> torch.Tensor:
        if type(x) is not torch.Tensor:
            plain: torch.Tensor = type(module).forward(module, x)
            return plain
        with off():
            if noted:
                mode.findings.scalars |= noted
                noted.clear()
            count.calls += 1
            return kernel(x, weight, eps, one_plus=one_plus)

    def forward(hidden_states: torch.Tensor) -> torch.Tensor:
        return norm(hidden_states)

    return norm if one_plus else forward


def _swiglu(module: Any, mode: ProfileMode) -> Callable[..., Any]:
    off, kernel = torch._C._DisableTorchDispatch, fused.swiglu
    count = mode.fused("repro_kernels.swiglu", "fused.swiglu")

    def forward(x: torch.Tensor) -> Any:
        gate, up = module.gate_proj(x), module.up_proj(x)
        with off():
            count.calls += 1
            product = kernel(gate, up)
        return module.down_proj(product)

    return forward


def _rotary(mode: ProfileMode, original: Callable[..., Any]) -> Callable[..., Any]:
    off, kernel = torch._C._DisableTorchDispatch, fused.rotary
    count = mode.fused("repro_kernels.rotary", "fused.rotary")

    def apply_rotary_pos_emb(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
        if unsqueeze_dim != 1 or cos.shape[-1] != q.shape[-1]:
            return original(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
        with off():
            count.calls += 1
            return kernel(q, k, cos, sin)

    return apply_rotary_pos_emb

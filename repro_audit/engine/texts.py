"""The texts of transformers that fused kernels stand for, and whether a function's source is one of them.

A text is compared up to decorators, annotations, docstrings and comments, so a version of transformers that
computes another sequence does not match. The texts are those of 5.24; before, what is ``cache`` there was called
``past_key_values``, and its ``update`` took no ``kwargs``.
"""
# ruff: noqa: E501 (transformers' lines are as long as they are)

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

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

DECODER_LAYER = """
def forward(self, hidden_states, attention_mask=None, position_ids=None, cache=None, use_cache=False, position_embeddings=None, **kwargs):
    residual = hidden_states
    hidden_states = self.input_layernorm(hidden_states)
    hidden_states, _ = self.self_attn(hidden_states=hidden_states, attention_mask=attention_mask, position_ids=position_ids, cache=cache, use_cache=use_cache, position_embeddings=position_embeddings, **kwargs)
    hidden_states = residual + hidden_states
    residual = hidden_states
    hidden_states = self.post_attention_layernorm(hidden_states)
    hidden_states = self.mlp(hidden_states)
    hidden_states = residual + hidden_states
    return hidden_states
"""

_ATTENTION_MODULE = """
def forward(self, hidden_states, position_embeddings{0}, attention_mask{0}, cache=None, **kwargs):
    input_shape = hidden_states.shape[:-1]
    hidden_shape = (*input_shape, -1, self.head_dim)
    query_states = {1}.transpose(1, 2)
    key_states = {2}.transpose(1, 2)
    value_states = self.v_proj(hidden_states).view(hidden_shape).transpose(1, 2)
    cos, sin = position_embeddings
    query_states, key_states = apply_rotary_pos_emb(query_states, key_states, cos, sin)
    if cache is not None:
        key_states, value_states = cache.update(key_states, value_states, self.layer_idx{4})
    attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
    attn_output, attn_weights = attention_interface(self, query_states, key_states, value_states, attention_mask, dropout=0.0 if not self.training else self.attention_dropout, scaling=self.scaling{3}, **kwargs)
    attn_output = attn_output.reshape(*input_shape, -1).contiguous()
    attn_output = self.o_proj(attn_output)
    return (attn_output, attn_weights)
"""
_QUERY, _KEY = (f"self.{name}_proj(hidden_states).view(hidden_shape)" for name in "qk")

#: Attention modules as Llama, Mistral, Qwen2 and Qwen3 write them.
ATTENTION_MODULES = tuple(
    _ATTENTION_MODULE.format(default, query, key, window, update)
    for default, query, key, window in (
        ("=None", _QUERY, _KEY, ""),
        ("", _QUERY, _KEY, ", sliding_window=getattr(self.config, 'sliding_window', None)"),
        ("", _QUERY, _KEY, ", sliding_window=self.sliding_window"),
        ("", f"self.q_norm({_QUERY})", f"self.k_norm({_KEY})", ", sliding_window=self.sliding_window"),
    )
    for update in (", kwargs=kwargs", "")
)

_RENAMED = {"past_key_values": "cache"}


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
            node.arg = _RENAMED.get(node.arg, node.arg)
        elif isinstance(node, ast.keyword) and node.arg is not None:
            node.arg = _RENAMED.get(node.arg, node.arg)
        elif isinstance(node, ast.Name):
            node.id = _RENAMED.get(node.id, node.id)
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Name("Any")
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

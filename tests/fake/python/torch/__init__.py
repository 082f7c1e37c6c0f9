"""A stand-in for PyTorch with CUDA, for tests of the scripts that time its attention operators (tests/cli/pytorch.sh):
as much of it as they use. Nothing is computed. Every call of an operator is appended to the file $FAKE_TORCH_CALLS,
with shapes for tensors; a sample takes $FAKE_TORCH_MS milliseconds. The operators have the parameters of PyTorch 2.11.
"""

import contextlib
import os
import types

__version__ = "2.11.0"
float16, bfloat16, int32, int64, uint8 = "float16", "bfloat16", "int32", "int64", "uint8"
float8_e4m3fn = "float8_e4m3fn"


class Tensor:
    def __init__(self, shape, values=None):
        self.shape, self.values = tuple(shape), values

    def to(self, _kind):
        return self

    def fill_(self, _value):
        return self

    def clamp(self, _least, _most):
        return self

    def mul(self, _factor):
        return self

    def transpose(self, a, b):
        shape = list(self.shape)
        shape[a], shape[b] = shape[b], shape[a]
        return Tensor(shape)

    def view(self, _kind):
        return self

    def sum(self):
        return Tensor(())

    def __repr__(self):
        return str(self.values) if self.values else "x".join(map(str, self.shape))


class Generator:
    def __init__(self, device):
        assert device == "cuda"

    def manual_seed(self, _seed):
        return self


def randn(shape, generator=None, device=None, dtype=None):
    return Tensor(shape)


def empty_like(other, dtype=None):
    return Tensor(other.shape)


def full(shape, _value, device=None):
    return Tensor(shape)


def empty(count, dtype=None, device=None):
    return Tensor((count,))


def tensor(values, dtype=None, device=None):
    assert dtype == int32 and device == "cuda"
    return Tensor((len(values),), values)


def matmul(a, b):
    return Tensor((a.shape[0], b.shape[1]))


def note(name, arguments):
    arguments = {key: value for key, value in arguments.items() if value is not None}
    with open(os.environ["FAKE_TORCH_CALLS"], "a", encoding="utf-8") as calls:
        print(name, *(f"{key}={value}" for key, value in arguments.items()), file=calls)
    if arguments.get("window_size_left") == int(os.environ.get("FAKE_TORCH_REFUSED", -1)):
        raise RuntimeError("this window is refused")


def _flash_attention_forward(query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal,
                             return_debug_mask, *, scale=None, window_size_left=None, window_size_right=None,
                             seqused_k=None, alibi_slopes=None):
    note("flash_forward", locals())
    return query, "lse", "rng_state", "unused", "debug"


def _flash_attention_backward(grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k,
                              dropout_p, is_causal, rng_state, unused, *, scale=None, window_size_left=None,
                              window_size_right=None):
    note("flash_backward", locals())
    return query, key, value


def _scaled_dot_product_cudnn_attention(query, key, value, attn_bias, compute_log_sumexp, dropout_p=0.0,
                                        is_causal=False, return_debug_mask=False, *, scale=None):
    note("cudnn_forward", locals())
    return query, "lse", None, None, query.shape[2], key.shape[2], "seed", "offset", "debug"


def _scaled_dot_product_cudnn_attention_backward(grad_out, query, key, value, out, logsumexp, philox_seed,
                                                 philox_offset, attn_bias, cum_seq_q, cum_seq_k, max_q, max_k,
                                                 dropout_p, is_causal, *, scale=None):
    note("cudnn_backward", locals())
    return query, key, value


def fa3_forward(query, key, value, out=None, seqused_k=None, softmax_scale=None, is_causal=False, num_splits=1,
                q_descale=None, k_descale=None, v_descale=None):
    """The operator of the wheel fa3-fwd."""
    note("fa3_forward", locals())
    return out, "lse"


ops = types.SimpleNamespace(fa3_fwd=types.SimpleNamespace(fwd=fa3_forward), load_library=lambda path: open(path).close(),
                            aten=types.SimpleNamespace(**{
    name: value for name, value in list(globals().items()) if name.startswith(("_flash", "_scaled"))}))


class Event:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        pass

    def elapsed_time(self, _after):
        return float(os.environ["FAKE_TORCH_MS"])


class Stream:
    def wait_stream(self, _other):
        pass

    def synchronize(self):
        pass


class CUDAGraph:
    def replay(self):
        pass


@contextlib.contextmanager
def _inside(*_arguments, **_keywords):
    yield


cuda = types.SimpleNamespace(
    is_available=lambda: True, get_device_properties=lambda _: types.SimpleNamespace(L2_cache_size=1024),
    get_device_name=lambda _: "made up", current_stream=Stream, Stream=Stream, Event=Event, CUDAGraph=CUDAGraph,
    graph=_inside, stream=_inside)
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(version=lambda: 91900))

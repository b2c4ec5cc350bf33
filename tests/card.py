"""A card that is not there: the processor's memory and kernels, by the rules of a GPU.

Importing this gives PyTorch the device `card`, for the rest of the process. An operation whose
tensors are on two devices is refused as a GPU refuses it: a number without dimensions may lie on
the host, and so may indices of what lies on the card. Operations that wait for the card are counted
(`waits`). What PyTorch computes by itself of views and copies is PyTorch's own.
"""

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "card"
HOST, CARD = 1, 12
"""Kinds of devices in DLPack, by which the same memory is said to be here or there."""
waits: Counter[str] = Counter()
"""Operations that waited for the card, by their names."""

INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
WAITING = {"nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "equal"}
NO_NUMBERS = {"_fused_adamw_", "mm", "addmm", "bmm", "cat", "gather", "scatter", "embedding"}
"""Operations that take no number of the host in place of a tensor."""
LOWERED = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "scaled_dot_product_attention")
"""Operations that are computed in the lower type under autocast."""
CODES = {
    torch.float32: (2, 32),
    torch.float64: (2, 64),
    torch.float16: (2, 16),
    torch.bfloat16: (4, 16),
    torch.complex64: (5, 64),
    torch.int64: (0, 64),
    torch.int32: (0, 32),
    torch.int16: (0, 16),
    torch.int8: (0, 8),
    torch.uint8: (1, 8),
    torch.bool: (6, 8),
}
"""Kinds of numbers in DLPack, and their bits."""


class _Facts(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Facts), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_kept: dict[int, Any] = {}


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _free(
    address: int, forget: Callable[..., Any] = _kept.pop
) -> None:  # the module may be gone by then
    forget(address, None)


_DELETER = ctypes.cast(_free, ctypes.c_void_p).value
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


def _as(tensor: Tensor, kind: int) -> Tensor:
    """The same memory, on the other device."""
    return _at(tensor, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), kind)


def _at(
    owner: Any,
    pointer: int,
    dtype: torch.dtype,
    shape: Sequence[int],
    strides: Sequence[int],
    kind: int,
) -> Tensor:
    code, bits = CODES[dtype]
    size = len(shape)
    numbers = (ctypes.c_int64 * (2 * size))(*shape, *strides)
    where = ctypes.addressof(numbers)
    facts = _Facts(pointer, kind, 0, size, code, bits, 1, where, where + 8 * size, 0)
    managed = _Managed(facts, None, _DELETER)
    address = ctypes.addressof(managed)
    _kept[address] = (managed, numbers, owner)
    with torch.inference_mode(False):  # such a tensor could not be given other memory
        made: Tensor = torch.utils.dlpack.from_dlpack(_capsule(address, b"dltensor", None))
    return made


def _is_there(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device.type == NAME


def _on_host(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _as(value, HOST) if value.device.type == NAME else value
    if isinstance(value, list | tuple):
        return [_on_host(one) for one in value]
    return value


def _on_card(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _as(value, CARD)
    return [_on_card(one) for one in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class _Operation:
    """What the schema of an operation says."""

    name: str
    results: int
    written: tuple[tuple[int, int, str], ...]
    """Results that are arguments: the place of each, and that of the argument, and its name."""
    outputs: frozenset[str]


@cache
def _read(operation: Any) -> _Operation:
    schema = operation._schema
    arguments = {
        tuple(one.alias_info.before_set): (place, one.name)
        for place, one in enumerate(schema.arguments)
        if one.alias_info is not None and one.alias_info.is_write
    }
    written = tuple(
        (place, *arguments[tuple(one.alias_info.before_set)])
        for place, one in enumerate(schema.returns)
        if one.alias_info is not None and one.alias_info.is_write
    )
    outputs = frozenset(one.name for one in schema.arguments if one.is_out)
    return _Operation(schema.name.removeprefix("aten::"), len(schema.returns), written, outputs)


def _tensors(arguments: Sequence[Any]) -> Iterator[tuple[int, Tensor]]:
    for place, argument in enumerate(arguments):
        for one in argument if isinstance(argument, list | tuple) else (argument,):
            if isinstance(one, Tensor):
                yield place, one


def _check(name: str, arguments: Sequence[Any]) -> None:
    """Refuse tensors of two devices, and count what waits."""
    there, here, mask = False, None, False
    for place, one in _tensors(arguments):
        index = place == 1 and name in INDEXED
        if one.device.type == NAME:
            there = True
            mask |= index and one.dtype == torch.bool
        elif not index and (one.dim() > 0 or name in NO_NUMBERS):
            here = one
    if there and (here is not None or (name in INDEXED and not _is_there(arguments[0]))):
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found card:0 and cpu in {name}"
        )
    if mask or name in WAITING:
        waits[name] += 1


def _compute(operation: Any, *arguments: Any, **options: Any) -> Any:
    """Any operation of tensors of the card."""
    known = _read(operation)
    if known.name in SPECIAL:
        return SPECIAL[known.name](*arguments, **options)
    _check(known.name, arguments)
    given = {name: _on_host(value) for name, value in options.items()}
    for name in known.outputs & options.keys():
        given[name] = torch.empty(0, dtype=options[name].dtype)
    given |= {name: torch.device("cpu") for name in ("device",) if name in given}
    if "pin_memory" in given:
        given["pin_memory"] = False
    found = operation(*[_on_host(one) for one in arguments], **given)
    for name in known.outputs & options.keys():
        if options[name].shape == given[name].shape:
            _as(options[name], HOST).copy_(given[name])
        else:
            options[name].data = _as(given[name], CARD)
    results = list(found) if known.results > 1 else [found]
    for place, at, name in known.written:
        results[place] = arguments[at] if at < len(arguments) else options[name]
    written = {place for place, _, _ in known.written}
    made = [one if at in written else _on_card(one) for at, one in enumerate(results)]
    return tuple(made) if known.results > 1 else made[0] if known.results else None


def _item(tensor: Tensor) -> Any:
    waits["item"] += 1
    return _as(tensor, HOST).item()


def _copy_from(source: Tensor, into: Tensor, non_blocking: bool = False) -> Tensor:
    del non_blocking
    if _is_there(source) and not _is_there(into):
        waits["copy to the host"] += 1
    _on_host(into).copy_(_on_host(source))
    return into


def _to_copy(
    tensor: Tensor,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    memory_format: Any = None,
    **others: Any,
) -> Tensor:
    del others
    asked = {"dtype": dtype, "memory_format": memory_format}
    options = {name: value for name, value in asked.items() if value is not None}
    made: Tensor = torch.ops.aten._to_copy.default(_as(tensor, HOST), **options)
    if device is None or torch.device(device).type == NAME:
        return _as(made, CARD)
    waits["copy to the host"] += 1
    return made


def _resize(tensor: Tensor, size: Sequence[int], **options: Any) -> Tensor:
    del options
    tensor.data = _as(_as(tensor, HOST).clone().resize_(size), CARD)
    return tensor


def _set(tensor: Tensor, source: Any, *place: Any) -> Tensor:
    if isinstance(source, Tensor):
        tensor.data = source
        return tensor
    bytes_each = tensor.element_size()
    offset, shape, *given = place or (0, [source.nbytes() // bytes_each])
    strides = given[0] if given else torch.empty(shape, device="meta").stride()
    pointer = source.data_ptr() + offset * bytes_each
    tensor.data = _at(source, pointer, tensor.dtype, shape, strides, CARD)
    return tensor


def _histc(tensor: Tensor, *arguments: Any, **options: Any) -> Tensor:
    """Of whole numbers too, as a GPU counts them and a processor does not."""
    counted = torch.histc(_as(tensor, HOST).double(), *arguments, **options)
    return _as(counted.to(tensor.dtype), CARD)


def _convolution(*arguments: Any) -> Tensor:
    _check("convolution", arguments)
    made: Tensor = torch.ops.aten.convolution.default(*map(_on_host, arguments))
    return _as(made, CARD)


def _convolution_backward(gradient: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    _check("convolution_backward", (gradient, *arguments))
    inputs, weight, *rest = map(_on_host, arguments)
    backward = torch.ops.aten.convolution_backward.default
    made = backward(_on_host(gradient), inputs, weight, [gradient.shape[1]], *rest)
    return tuple(None if one is None else _as(one, CARD) for one in made)


SPECIAL: dict[str, Callable[..., Any]] = {
    "_local_scalar_dense": _item,
    "_copy_from": _copy_from,
    "histc": _histc,
    "resize_": _resize,
    "set_": _set,
    "_fused_sdp_choice": lambda *_, **__: 0,  # attention by products: it has no kernel of its own
}


class _Stream:
    def wait_stream(self, other: "_Stream") -> None:
        """Nothing runs beside anything."""

    def synchronize(self) -> None:
        """Nothing is under way."""


class _Module:
    """The facts that PyTorch asks of a kind of device: `torch.card`."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        """It draws nothing by itself."""

    def get_rng_state(self, device: int = 0) -> Tensor:
        return torch.zeros(8, dtype=torch.uint8)

    def set_rng_state(self, state: Tensor, device: int = 0) -> None:
        """It draws nothing by itself."""

    def current_stream(self) -> _Stream:
        return _Stream()

    def stream(self, stream: _Stream) -> AbstractContextManager[None]:
        return nullcontext()

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


_clone = torch.UntypedStorage.clone


def _cloned(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    if storage.device.type != NAME:
        return _clone(storage)
    copied = torch.empty(storage.nbytes(), dtype=torch.uint8)
    ctypes.memmove(copied.data_ptr(), storage.data_ptr(), storage.nbytes())
    return _as(copied, CARD).untyped_storage()


def _lowered(operation: Any) -> Callable[..., Any]:
    """The operation under autocast."""
    autocast = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

    def run(*arguments: Any, **options: Any) -> Any:
        low = torch.get_autocast_dtype(NAME)

        def cast(value: Any) -> Any:
            return value.to(low) if _is_there(value) and value.dtype == torch.float32 else value

        with torch._C._ExcludeDispatchKeyGuard(autocast):
            return operation(
                *map(cast, arguments), **{name: cast(value) for name, value in options.items()}
            )

    return run


_setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
torch.UntypedStorage.clone = _cloned
_every = torch.library.Library("_", "IMPL")
_every.fallback(_compute, "PrivateUse1")
_every.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
_some = torch.library.Library("aten", "IMPL")
_some.impl("_to_copy", _to_copy, "PrivateUse1")
_some.impl("convolution_overrideable", _convolution, "PrivateUse1")
_some.impl("convolution_backward_overrideable", _convolution_backward, "PrivateUse1")
for _name in LOWERED:
    _some.impl(_name, _lowered(getattr(torch.ops.aten, _name).default), "AutocastPrivateUse1")

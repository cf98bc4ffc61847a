"""What the library can take of a tensor, and errors for everything else."""

import torch

from .._arrays import BF16, F16, F32, freed, refuse_outside_storage

DTYPES = {torch.float32: F32, torch.bfloat16: BF16, torch.float16: F16}


def is_dtensor(p):
    """Whether p is a DTensor, told without importing torch.distributed."""
    return hasattr(p, "placements") and hasattr(p, "device_mesh")


def refuse_foreign(p, name):
    """A parameter must be host memory of a type that the library knows."""
    flattened = "_fsdp_wrapped_module" in name or getattr(p, "_fsdp_flattened", False)
    if getattr(p, "_is_flat_param", False) or flattened and p.ndim < 2:
        raise TypeError(f"{name!r} is a flat parameter of FullyShardedDataParallel (FSDP1), which "
                        "joins matrices end to end: Muon needs the matrices. Use FSDP2 "
                        "(torch.distributed.fsdp.fully_shard), which keeps them")
    if hasattr(p, "ds_id") or hasattr(p, "ds_tensor"):
        raise TypeError(f"{name!r} is partitioned by DeepSpeed's ZeRO 3, whose partitions are flat: "
                        "Muon needs the matrices. Use FSDP2 (fully_shard)")
    if p.layout is not torch.strided:
        raise TypeError(f"{name!r} is {p.layout}: parameters are dense tensors")
    if not p.is_cpu:
        raise ValueError(f"{name!r} is on {p.device}: Muonium computes on the CPU. use "
                         "muonium.torch.OffloadMuon, or CPUOffloadPolicy of FSDP2")
    if p.dtype not in DTYPES:
        raise TypeError(f"{name!r} is {p.dtype}: parameters are float32, bfloat16 or float16")
    if p.is_neg():
        raise ValueError(f"{name!r} is a negative view, as of x.conj().imag: use a copy, x.clone()")


def refuse_flattened(before, now):
    """Refuse tensors that a framework has put in the place of a group's matrices."""
    if any(p.ndim >= 2 for p in before) and all(p.ndim < 2 for p in now):
        raise TypeError(
            f"{len(before)} parameters of a group, matrices among them, were replaced by "
            f"{len(now)} flat tensors of {', '.join(str(p.numel()) for p in now[:3])} elements, as "
            "ZeRO's flat partitions are: Muon needs the matrices. Use FSDP2 (fully_shard), "
            "DistributedDataParallel or torch's ZeroRedundancyOptimizer, which keep them")


def refuse_freed(t, address, what):
    """Refuse a tensor at an address that has no memory for all of its elements."""
    if address == 0 and t.numel() > 0:
        raise freed(what)
    refuse_outside_storage(t, what)


def is_dense(g):
    return g is not None and g.layout is torch.strided


def is_packed(p):
    """No gaps and no overlaps in some order of dimensions: autograd then gives gradients
    the parameter's own strides."""
    step = 1
    for size, stride in sorted(zip(p.shape, p.stride()), key=lambda pair: (pair[1], pair[0])):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True

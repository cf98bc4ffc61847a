"""Muon over DTensors: FSDP2 (fully_shard) and every other one-dimensional sharding.

A sharded matrix has an owner, one of the ranks that share it. A step computes momentum and
direction on the local shards, sends the shards of each direction to its owner, orthogonalises there
and sends the shards of the update back: two all-to-alls for all matrices. Momentum stays sharded.
Element-wise parameters are stepped on the local shards, replicated parameters on every rank.
"""

from collections import defaultdict
from typing import Any, Dict, List

import torch

from .._arrays import BF16, F32, INT8, Array, dense_strides
from .._handle import Handle
from .._library import NonFiniteError, library
from .._options import ALIASES, CHOICES, make_options
from ._groups import given_of, names_of_group, whole_steps
from ._link import STATE_KEYS, Link
from ._tensors import is_dtensor, refuse_foreign

# Of the owner, which gets directions and returns updates: the rest is done on the shards.
_OWNER = {"momentum": 0.0, "momentum_form": "lerp", "nesterov": False, "weight_decay": 0.0,
          "decay": "decoupled", "maximize": False, "state_dtype": "f32", "master": False,
          "stochastic_rounding": False, "use_muon": True}
_NO_GRADIENT, _FINITE, _NON_FINITE = 0, 1, 2
_STATE_DTYPES = {F32: torch.float32, BF16: torch.bfloat16}
_ADDRESS = 4096  # of a parameter that is described only


def _shard_of(p, name):
    """The mesh dimension over which p is sharded and the tensor dimension that is cut; or None."""
    mesh, found = p.device_mesh, []
    for number, placement in enumerate(p.placements):
        if placement.is_partial():
            raise TypeError(f"{name!r} has the placements {p.placements}: a parameter with partial "
                            "sums has no value to step")
        if placement.is_shard() and mesh.size(number) > 1:
            if type(placement).__name__ != "Shard":
                raise TypeError(f"{name!r} has the placements {p.placements}: strided shards, as "
                                "of FSDP over tensor parallelism, are not supported")
            found.append((number, placement.dim))
    if len(found) > 1:
        raise TypeError(f"{name!r} has the placements {p.placements}: parameters that are sharded "
                        "over one mesh dimension are supported (FSDP2, HSDP), not over two")
    return found[0] if found else None


def _cuts(size, ranks):
    """(first, length) of each rank's part of a dimension, as DTensor cuts it."""
    chunk = -(-size // ranks)
    return [(min(r * chunk, size), min((r + 1) * chunk, size) - min(r * chunk, size))
            for r in range(ranks)]


def _local(t):
    return t._local_tensor if is_dtensor(t) else t


def _gradient(p):
    """The local part of a gradient, placed as its parameter."""
    g = p.grad
    if g is None:
        return None
    if not is_dtensor(g):
        raise TypeError("the gradient of a DTensor must be a DTensor")
    if g.placements != p.placements:
        g = g.redistribute(placements=p.placements)
    return g._local_tensor


def _like(p, local):
    """A DTensor of the shape and placements of p with this local part, which stays in host memory:
    DTensor.from_local would copy it to the device of the mesh."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    meta = TensorMeta(p.shape, p.stride(), local.dtype)
    return DTensor(local, DTensorSpec(p.device_mesh, p.placements, tensor_meta=meta),
                   requires_grad=False)


def _refuse_group(process_group, name):
    """Ranks must be able to exchange host memory."""
    try:
        process_group._get_backend(torch.device("cpu"))
    except RuntimeError:
        backend = torch.distributed.get_backend(process_group)
        raise RuntimeError(
            f"{name!r} is sharded over a process group with the backend {backend}, which cannot "
            "exchange host memory: use torch.distributed.init_process_group("
            "\"cpu:gloo,cuda:nccl\")") from None


def _part(p, value, what):
    """The local part of a whole or sharded tensor that is state of p."""
    if tuple(value.shape) != tuple(p.shape):
        raise ValueError(f"{what} has shape {tuple(value.shape)}: it must be {tuple(p.shape)}")
    if is_dtensor(value):
        if value.placements != p.placements or value.device_mesh != p.device_mesh:
            value = value.redistribute(p.device_mesh, p.placements)
        return value._local_tensor
    shard = _shard_of(p, what)
    if shard is None:
        return value
    mesh_dim, dim = shard
    first, length = _cuts(p.shape[dim], p.device_mesh.size(mesh_dim))[
        p.device_mesh.get_local_rank(mesh_dim)]
    return value.narrow(dim, first, length)


class _Matrix:
    """A sharded parameter under Muon."""

    def __init__(self, p, name, shard, group, report, options):
        mesh_dim, self.dim = shard
        self.p, self.name, self.group, self.report = p, name, group, report
        self.ranks = p.device_mesh.size(mesh_dim)
        self.rank = p.device_mesh.get_local_rank(mesh_dim)
        self.process_group = p.device_mesh.get_group(mesh_dim)
        self.cuts = _cuts(p.shape[self.dim], self.ranks)
        local = _local(p)
        if local.shape[self.dim] != self.cuts[self.rank][1]:
            raise TypeError(f"{name!r} has {local.shape[self.dim]} of {p.shape[self.dim]} indices on "
                            f"rank {self.rank} of {self.ranks}, not {self.cuts[self.rank][1]}: only "
                            "DTensor's own way of cutting is supported")
        self.momentum = torch.zeros(local.shape, dtype=_STATE_DTYPES[options.state_dtype])
        self.steps = 0
        self.owner = 0
        self.place = None   # on its owner: the whole update, whose gradient is the direction

    def numel_of(self, rank):
        size = self.p.shape[self.dim]
        return self.p.numel() // size * self.cuts[rank][1] if size else 0

    def follow(self, coefficients):
        """This step's momentum and direction, of the shard; neither is kept."""
        decay, gain, of_g, of_m = coefficients
        g = self.gradient.float()
        m = (self.momentum.float() * decay).add_(g, alpha=gain).to(self.momentum.dtype)
        return m, (m.float() * of_m).add_(g, alpha=of_g)

    def coefficients(self, options):
        """As mu_momentum_of in src/optimizer/muon.c."""
        mu, t = options.momentum, self.steps + 1
        form = CHOICES["momentum_form"][options.momentum_form]
        ahead = CHOICES["nesterov_form"][options.nesterov_form]
        unbias = 1 / (1 - mu**t) if form == "ema_corrected" else 1.0
        of_g, of_m = 0.0, unbias
        if options.nesterov and form == "ema_corrected" and ahead == "auto":
            of_g, of_m = (1 - mu) * unbias, mu / (1 - mu ** (t + 1))
        elif options.nesterov:
            sums = form == "sum" if ahead == "auto" else ahead == "sum"
            of_g, of_m = 1.0 if sums else 1 - mu, mu * unbias
        sign = -1.0 if options.maximize else 1.0
        return mu, sign * (1.0 if form == "sum" else 1 - mu), sign * of_g, of_m

    def update(self, update, options):
        """Decay and update the shard, as `update` in src/vector."""
        local = _local(self.p)
        kind = CHOICES["decay"][options.decay]
        decay = options.weight_decay * (1 if kind == "independent" else options.lr)
        w = local.float()
        decayed = w * decay
        if kind == "cautious":  # `update` is against O
            decayed = torch.where(torch.copysign(torch.ones(()), w) * update < 0, decayed, 0.0)
        local.copy_(w - (decayed - update))


class _Exchange:
    """The matrices that one group of ranks shares, and the other parameters that it agrees on."""

    def __init__(self, process_group, matrices, others):
        self.process_group, self.matrices, self.others = process_group, matrices, others
        self.rank = torch.distributed.get_rank(process_group)
        self.ranks = torch.distributed.get_world_size(process_group)
        loads = [0.0] * self.ranks
        for matrix in sorted(matrices, key=lambda m: -m.report.flops):  # longest first, stable
            matrix.owner = loads.index(min(loads))
            loads[matrix.owner] += matrix.report.flops
        self.owned = [matrix for matrix in matrices if matrix.owner == self.rank]
        self.sent = 0  # bytes, to other ranks
        for matrix in self.owned:
            matrix.place = torch.zeros(tuple(matrix.p.shape))
            matrix.place.grad = torch.zeros(tuple(matrix.p.shape))
        self.links: List[tuple] = []
        by_group: Dict[int, List[_Matrix]] = defaultdict(list)
        for matrix in self.owned:
            by_group[id(matrix.group)].append(matrix)
        for members in by_group.values():
            places = {"params": [m.place for m in members],
                      "param_names": [m.name for m in members]}
            self.links.append((members[0].group, places, Link([self.owner_group(members[0].group,
                                                                              places)])))

    @staticmethod
    def owner_group(group, places):
        kept = {key: value for key, value in given_of(group).items()
                if ALIASES.get(key, key) not in _OWNER}
        return {**kept, **_OWNER, "recipe": group["recipe"], "params": places["params"],
                "param_names": places["param_names"]}

    def agree(self, codes):
        """The largest code of each entry over the ranks, and the smallest."""
        both = torch.tensor([*codes, *(-code for code in codes)], dtype=torch.int32)
        torch.distributed.all_reduce(both, torch.distributed.ReduceOp.MAX, self.process_group)
        largest = both.tolist()
        return largest[:len(codes)], [-code for code in largest[len(codes):]]

    def to_owners(self, active, directions):
        """Send the shards of directions to their owners."""
        mine = [m for m in active if m.owner == self.rank]
        outgoing = [[m for m in active if m.owner == rank] for rank in range(self.ranks)]
        sizes = [sum(m.numel_of(self.rank) for m in ms) for ms in outgoing]
        send = torch.cat([directions[m].reshape(-1) for ms in outgoing for m in ms])
        received = self.exchange(send, sizes, [sum(m.numel_of(rank) for m in mine)
                                               for rank in range(self.ranks)])
        for rank, at in self.places(mine, received):
            at[0].place.grad.narrow(at[0].dim, *at[0].cuts[rank]).copy_(at[1])
            at[0].place.zero_()

    def from_owners(self, active):
        """Send the shards of updates back; those of this rank, by matrix."""
        mine = [m for m in active if m.owner == self.rank]
        order = [m for rank in range(self.ranks) for m in active if m.owner == rank]
        send = torch.cat([m.place.narrow(m.dim, *m.cuts[rank]).reshape(-1)
                          for rank in range(self.ranks) for m in mine] or [torch.zeros(0)])
        received = self.exchange(
            send, [sum(m.numel_of(rank) for m in mine) for rank in range(self.ranks)],
            [sum(m.numel_of(self.rank) for m in order if m.owner == rank)
             for rank in range(self.ranks)])
        pieces = received.split([m.numel_of(self.rank) for m in order])
        return {m: piece.view(_local(m.p).shape) for m, piece in zip(order, pieces)}

    def places(self, mine, received):
        sizes = [m.numel_of(rank) for rank in range(self.ranks) for m in mine]
        pieces = iter(received.split(sizes) if sizes else ())
        for rank in range(self.ranks):
            for m in mine:
                shape = list(m.p.shape)
                shape[m.dim] = m.cuts[rank][1]
                yield rank, (m, next(pieces).view(shape))

    def exchange(self, send, out_sizes, in_sizes):
        received = torch.empty(sum(in_sizes))
        torch.distributed.all_to_all_single(received, send, in_sizes, out_sizes,
                                            self.process_group)
        self.sent += 4 * (sum(out_sizes) - out_sizes[self.rank])
        return received

    def step_owned(self, active):
        """Orthogonalise what this rank owns; the error as text, or nothing."""
        try:
            for group, places, link in self.links:
                for p in places["params"]:
                    p.grad, p.kept = None, p.grad if p.grad is not None else p.kept
                for m in active:
                    if m.place is not None and m.group is group:
                        m.place.grad = m.place.kept
                now = self.owner_group(group, places)
                if not link.follow([now]):
                    raise RuntimeError("options of a group changed in the middle of a step")
                link.step()
                for p in places["params"]:
                    p.grad = p.kept
        except (ArithmeticError, MemoryError, RuntimeError, ValueError) as error:
            return str(error)
        return ""


class ShardedLink:
    """The library's optimizers for groups with DTensors, with the state given. See Link."""

    def __init__(self, groups, state=None):
        self.groups = [tuple(group["params"]) for group in groups]
        self.stepped = self.complete = False
        self.whole = False
        self.matrices: List[_Matrix] = []
        self.local: List[Dict[str, Any]] = []   # groups of the parameters that are stepped here
        self.origins: List[Dict[str, Any]] = []  # and the groups that they come from
        self.stand_ins: Dict[Any, torch.Tensor] = {}  # local parts, by DTensor
        self.counts: Dict[Any, int] = {}  # steps of DTensors that may have no elements here
        self.shards: Dict[Any, tuple] = {}  # their names, groups and process groups
        self.process_groups: List[Any] = []  # of everything that is sharded
        self.order: List[tuple] = []  # (kind, name) of all parameters
        self.settled = [self.settled_of(group) for group in groups]
        for index, group in enumerate(groups):
            self.add(index, group)
        if not self.local:  # every parameter is a sharded matrix
            nothing: Dict[str, Any] = {"params": [], "param_names": []}
            self.local.append({**groups[0], **nothing})
            self.origins.append((groups[0], nothing))
        self.inner = Link(self.local, self.inner_state(state))
        self.exchanges = [
            _Exchange(process_group, [m for m in self.matrices if m.process_group is process_group],
                      [p for p, known in self.shards.items() if known[2] is process_group])
            for process_group in self.process_groups]
        if state:
            self.set_state(state)
        self.whole = True

    @staticmethod
    def takes(group):
        return False

    @staticmethod
    def settled_of(group):
        live = ("lr", "weight_decay", "momentum")
        return {key: value for key, value in given_of(group).items() if key not in live}

    def add(self, index, group):
        options = make_options(group["recipe"], given_of(group))
        plain: Dict[str, Any] = {"params": [], "param_names": []}
        adam: Dict[str, Any] = {"params": [], "param_names": [], "use_muon": False, "route": "adam"}
        for p, name in zip(group["params"], names_of_group(index, group)):
            into = plain
            if is_dtensor(p):
                shard = _shard_of(p, name)
                refuse_foreign(_local(p), name)
                report = self.report_of(p, name, group, options)
                self.refuse_int8(name, report, options)
                if shard:
                    process_group = p.device_mesh.get_group(shard[0])
                    if not any(process_group is known for known in self.process_groups):
                        _refuse_group(process_group, name)
                        self.process_groups.append(process_group)
                if shard and report.optimizer == "muon":
                    self.refuse_options(name, group, options, p)
                    self.matrices.append(_Matrix(p, name, shard, group, report, options))
                    continue
                stand_in = torch.nn.Parameter(_local(p).detach(), requires_grad=p.requires_grad)
                self.stand_ins[p] = stand_in
                if shard:
                    into = adam
                    self.counts[p] = 0
                    self.shards[p] = name, group, process_group
                p = stand_in
            into["params"].append(p)
            into["param_names"].append(name)
        for found in (plain, adam):
            if found["params"]:
                self.local.append({**group, **found})
                self.origins.append((group, found))

    @staticmethod
    def report_of(p, name, group, options):
        """Routes follow the shape of the whole."""
        handle = Handle(options, library.muonium_create_description)
        handle.add(name, Array(_ADDRESS, F32, tuple(p.shape), dense_strides(p.shape), None),
                   given_of(group))
        return handle.report(0)

    @staticmethod
    def refuse_int8(name, report, options):
        option = "state_dtype" if report.optimizer == "muon" else "adam_state_dtype"
        if getattr(options, option) == INT8:
            raise ValueError(f"{option} is int8, and {name!r} is a DTensor: shards would cut the "
                             "blocks that share a scale; use f32")

    @staticmethod
    def refuse_options(name, group, options, p):
        rules = ("normuon", "adamuon", "hyperball")
        if options.state_dtype not in _STATE_DTYPES:
            kind = CHOICES["state_dtype"][options.state_dtype]
            raise ValueError(f"state_dtype is {kind!r}, and {name!r} is sharded: sharded matrices "
                             f"support {' and '.join(CHOICES['state_dtype'][:2])}")
        if options.fraction < 1:
            raise ValueError(f"fraction is {options.fraction:g}, and {name!r} is sharded: sharded "
                             "matrices do not support it; set it to 1, or keep the parameter "
                             "replicated")
        for option in (*rules, "stochastic_rounding", "master"):
            if getattr(options, option) and (option in rules or p.dtype != torch.float32):
                raise ValueError(f"{option} is on, and {name!r} is sharded: sharded matrices do not "
                                 "support it; turn it off, or keep the parameter replicated")

    # ---- the step ----

    def follow(self, groups):
        if len(groups) != len(self.groups):
            return False
        for group, params, settled in zip(groups, self.groups, self.settled):
            if (self.settled_of(group) != settled or len(params) != len(group["params"])
                    or any(a is not b for a, b in zip(params, group["params"]))):
                return False
        return self.inner.follow([{**origin, **found} for origin, found in self.origins])

    def step(self):
        for p, stand_in in self.stand_ins.items():
            local, g = _local(p), _gradient(p)
            if stand_in.data_ptr() != local.data_ptr() or stand_in.shape != local.shape:
                stand_in.data = local.detach()
            stand_in.grad = g
        for matrix in self.matrices:
            matrix.gradient = _gradient(matrix.p)
        for exchange in self.exchanges:
            self.check(exchange)
        done = [self.begin(exchange) for exchange in self.exchanges]
        self.stepped = True
        self.inner.step()
        for p in self.counts:
            self.counts[p] += self.stand_ins[p].grad is not None
        for active, updates in done:
            for matrix in active:
                options = make_options(matrix.group["recipe"], given_of(matrix.group))
                matrix.momentum = matrix.follow(matrix.coefficients(options))[0]
                matrix.update(updates[matrix], options)
                matrix.steps += 1

    # `check` and `begin` are everything of a step that can fail: nothing has changed after an
    # error, on any rank.

    def check(self, exchange):
        """Agree with the other ranks about who has gradients, and whether they are finite."""
        everything = [(m.name, m.gradient, m.group) for m in exchange.matrices]
        everything += [(self.shards[p][0], self.stand_ins[p].grad, self.shards[p][1])
                       for p in exchange.others]
        codes = [_NO_GRADIENT if g is None else _FINITE if bool(torch.isfinite(g).all())
                 else _NON_FINITE for _, g, _ in everything]
        largest, smallest = exchange.agree(codes)
        policy = {}
        for number, ((name, _, group), most, least) in enumerate(zip(everything, largest, smallest)):
            if least == _NO_GRADIENT != most:
                raise ValueError(f"{name!r} has a gradient on some ranks and none on others")
            kind = policy.setdefault(id(group), CHOICES["nonfinite"][
                make_options(group["recipe"], given_of(group)).plan.nonfinite])
            if most == _NON_FINITE and kind == "error":
                raise NonFiniteError(f"the gradient of {name!r} is not finite on some rank: use "
                                     "nonfinite=\"skip\" to leave such parameters as they are")
            if most == _NON_FINITE and kind == "skip":
                if number < len(exchange.matrices):
                    exchange.matrices[number].gradient = None
                else:
                    p = exchange.others[number - len(exchange.matrices)]
                    self.stand_ins[p].grad = None

    def begin(self, exchange):
        """Exchange directions for updates; what has a gradient, and its updates."""
        active = [m for m in exchange.matrices if m.gradient is not None]
        if not active:
            return active, {}
        directions = {}
        for m in active:
            options = make_options(m.group["recipe"], given_of(m.group))
            directions[m] = m.follow(m.coefficients(options))[1]
        exchange.to_owners(active, directions)
        failed = exchange.step_owned([m for m in active if m.owner == exchange.rank])
        if exchange.agree([int(bool(failed))])[0][0]:
            raise NonFiniteError(failed or "a matrix could not be orthogonalised on another rank")
        return active, exchange.from_owners(active)

    # ---- reports ----

    @property
    def params(self):
        by_stand_in = {id(t): p for p, t in self.stand_ins.items()}
        return [by_stand_in.get(id(p), p) for p in self.inner.params] + [m.p for m in self.matrices]

    def reports(self):
        return self.inner.reports() + [
            m.report._replace(state_bytes=m.momentum.numel() * m.momentum.element_size(),
                              lr=float(m.group["lr"]), steps=m.steps) for m in self.matrices]

    def counters(self):
        """Of this rank, but for the parameters, which are counted on each."""
        found = self.inner.counters()
        for exchange in self.exchanges:
            for _, _, link in exchange.links:
                owned = link.counters()
                for key in ("matrices", "skipped", "rescued", "zero", "flops", "scratch_bytes"):
                    found[key] += owned[key]
                found["state_bytes"] += owned["state_bytes"]
        found["steps"] = max([found["steps"], *(m.steps for m in self.matrices)])
        found["muon"] += len(self.matrices)
        found["state_bytes"] += sum(m.momentum.numel() * m.momentum.element_size()
                                    for m in self.matrices)
        found["bytes_sent"] = sum(exchange.sent for exchange in self.exchanges)
        return found

    def save(self, path):
        raise RuntimeError("save() writes the state of one process, and parameters are sharded: use "
                           "torch.distributed.checkpoint with get_optimizer_state_dict")

    load = save

    # ---- state ----

    def state(self):
        self.inner.complete = self.complete
        inner = self.inner.state()
        found: Dict[Any, Dict[str, Any]] = defaultdict(dict)
        by_stand_in = {id(t): p for p, t in self.stand_ins.items()}
        for stand_in, entry in inner.items():
            p = by_stand_in.get(id(stand_in), stand_in)
            found[p] = {key: _like(p, value) if p is not stand_in and key in STATE_KEYS
                        and value.shape == stand_in.shape else value
                        for key, value in entry.items()}
        for p, steps in self.counts.items():
            if _local(p).numel() == 0 and (steps or self.complete):
                empty = torch.zeros(_local(p).shape)
                found[p] = {"step": torch.tensor(float(steps)), "exp_avg": _like(p, empty),
                            "exp_avg_sq": _like(p, empty.clone())}
        for m in self.matrices:
            if m.steps or self.complete:
                found[m.p] = {"step": torch.tensor(float(m.steps)),
                              "momentum_buffer": _like(m.p, m.momentum)}
        # In the order of the groups: collectives over a state dict need the same on every rank.
        return defaultdict(dict, {p: found[p] for params in self.groups for p in params
                                  if p in found})

    def inner_state(self, state):
        """State by DTensor as state by its local part."""
        if not state:
            return None
        found = {p: entry for p, entry in state.items() if not is_dtensor(p)}
        for p, stand_in in self.stand_ins.items():
            if state.get(p) and _local(p).numel():
                found[stand_in] = {
                    key: _part(p, value, key) if key in STATE_KEYS and key != "normuon"
                    and isinstance(value, torch.Tensor) else value
                    for key, value in state[p].items()}
        return found

    def set_state(self, state):
        for m in self.matrices:
            entry = state.get(m.p)
            if not entry:
                continue
            value = entry.get("momentum_buffer")
            if not isinstance(value, torch.Tensor):
                raise ValueError(f"the state of {m.name!r} has {', '.join(map(str, entry))}: it "
                                 "needs momentum_buffer; see report() for who gets Muon")
            m.momentum = _part(m.p, value, f"momentum_buffer of {m.name!r}").detach().to(
                "cpu", m.momentum.dtype).clone()
            m.steps = whole_steps(entry.get("step", 1), m.name)
        for p in self.counts:
            if state.get(p):
                self.counts[p] = whole_steps(state[p].get("step", 1), "a parameter")
        self.stepped = True

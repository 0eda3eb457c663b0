r"""The one door: what is private leaves through here, and nowhere else.

A release takes five steps, always in this order. The content is read in its
canonical form; the slot is looked up and bound; all parts are charged, or none;
the noise is drawn; and the ledger gets its entries.

**What is bound to what.** A *slot* is (identity of the graph, mechanism with
its arguments, fields). Its first release draws a random nonce and stores it
with a keyed fingerprint of the content. Noise is addressed by (vault key,
nonce, row), and names of releases are random.

**Theorem (permanence).** For any sequence of calls on identities of one vault,
what leaves is a function of fresh noise for each charge, of what was released
before, and of nothing else that depends on raw content. So the charges in the
ledger, by composition, bound all that is ever told.

*Proof.* A call ends in one of three ways. (1) The slot is new, or renewed: it
is charged, and draws a nonce that is independent of everything. To whoever
lacks the key, the stream at a new nonce is a row of new fair coins (HMAC and
AES are pseudo-random functions), so this is the mechanism with fresh noise, for
which it was charged. (2) The slot is bound to this very content: then the same
function of the same coins is computed again, and a copy tells nothing new. (3)
It is bound to other content: then nothing leaves but a refusal, to the owner.
No coin is ever used for two contents, so that two releases are never equal
because two contents are. ∎

Were noise addressed by the content, as it once was here, equal contents would
have equal releases, and whoever sees two of them would know, at any epsilon.

Without a budget there is no identity. Then each call draws from the operating
system and is a release of its own, and the second one of the same content in
this process warns.
"""
import contextvars
import hashlib
import secrets
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.data.storage import BaseStorage
from torch_geometric.utils import is_sparse

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp.accountant import (
    Guarantee,
    PrivacyAccountant,
    Release,
    Unit,
)
from torch_geometric_dp.accountant.entry import Pairs
from torch_geometric_dp.noise import NoiseSource, grid, in_threads
from torch_geometric_dp.storage import row_blocks
from torch_geometric_dp.vault import PrivacyBudget

#: Named tensors: all that a release depends on.
Content = Sequence[tuple[str, tuple[Tensor, ...]]]

_MOST_SEEN = 2**12
_LEAF = 2**20
_SEEN: dict[bytes, None] = {}  # What left without a budget, by fingerprint.
_HERE = NoiseSource.from_os()  # For fingerprints that this process keeps.
_TRIAL = contextvars.ContextVar('trial', default=False)
#: Fields that are about the graph, not of it.
ASIDE = ('privacy', 'privacy_budget')


@dataclass(frozen=True)
class Part:
    """One promise of a release, and what it is given for."""
    who: Captured
    base: type
    guarantee: Guarantee
    fields: tuple[str, ...]
    public: tuple[tuple[str, Unit | None], ...] = ()
    parameters: Pairs = ()
    stability: int = 1


@dataclass(frozen=True)
class Ticket:
    """What a release is drawn with: the source of its noise, and its entries,
    which are paid for. :obj:`new` is false for those that were paid before.
    """
    source: NoiseSource
    releases: tuple[Release, ...]
    new: bool


class Releaser:
    r"""Charges first, then hands out noise. Holds no secret.

    Args:
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)
    """
    def __init__(self, seed: int | None = None) -> None:
        self.seed = None if seed is None else int(seed)
        self._calls = 0  # Numbers the releases of a seeded run.
        self._renew = False

    def renew(self) -> None:
        """Makes the next release a new one, which costs again."""
        self._renew = True

    def admit(self, parts: Sequence[Part], content: Content,
              budget: PrivacyBudget | None, anonymous: bool = False) -> Ticket:
        """Charges all parts of a release, or none, and returns what to draw it
        with. If the budget is :obj:`anonymous`, entries do not name it: it is
        nobody's identity.
        """
        graph = None if budget is None or anonymous else budget.identity
        releases = [Release(
            part.guarantee, type(part.who).__name__, part.who.arguments(),
            part.fields, secrets.token_hex(16),
            bases=part.who.lineage(part.base), graph=graph, seed=self.seed,
            public=part.public, stability=part.stability,
            parameters=part.parameters) for part in parts]
        meant = self._renew
        ticket = self.bind(slot_of(parts), releases, content, budget)
        if anonymous and ticket.new and not meant:
            self._warn(content, releases)
        return ticket

    def bind(self, slot: str, releases: Sequence[Release], content: Content,
             budget: PrivacyBudget | None) -> Ticket:
        """Binds a slot to a content, and charges what has to be paid."""
        if budget is None:
            self._calls += 1
            self._warn(content, releases)
            nonce = self._nonce(slot, content)
            key = NoiseSource.from_os() if self.seed is None else _seeded(
                self.seed)
            return Ticket(key.derive(nonce), tuple(releases), True)
        renew, self._renew = self._renew, False
        self._calls += renew
        number, secret = budget.key_of(slot, renew)
        key = NoiseSource(secret)
        nonce, entries, new = budget.bind(
            slot, fingerprint(key, content), self._nonce(slot, content),
            releases, renew, number)
        if self.seed is not None:
            key = _seeded(self.seed)
        return Ticket(key.derive(nonce), tuple(entries), new)

    def _warn(self, content: Content, releases: Sequence[Release]) -> None:
        if self.seed is None and not _TRIAL.get():
            _warn_of_repetition(content, releases)

    def _nonce(self, slot: str, content: Content) -> bytes:
        if self.seed is None:
            return secrets.token_bytes(32)
        # Repeatable from the instance on; the content keeps apart what forked
        # workers, which all count from the same number, release.
        source = _seeded(self.seed)
        return source.digest(slot, self._calls, fingerprint(source, content))


def slot_of(parts: Sequence[Part]) -> str:
    """The name of what is released: who, with which arguments and promises, and
    which fields. A SHA-256.
    """
    text = repr([(type(part.who).__module__, type(part.who).__qualname__,
                  part.who.arguments(all_of_them=True), part.guarantee,
                  part.fields, part.parameters, part.stability)
                 for part in parts])
    return hashlib.sha256(text.encode()).hexdigest()


def _seeded(seed: int) -> NoiseSource:
    return NoiseSource.from_seed(seed)


def _warn_of_repetition(content: Content,
                        releases: Sequence[Release]) -> None:
    if not releases or not any(v.numel() for _, vs in content for v in vs):
        return
    seen = fingerprint(_HERE, content)
    if seen in _SEEN:
        warnings.warn(
            f"{releases[0].call} releases again what was released before, "
            f"without a budget: noise that is drawn again can be averaged "
            f"away, and each ledger tells of one release only. Give the graph "
            f"a budget, data.privacy_budget = PrivacyBudget(...), or release "
            f"it once and keep the result", stacklevel=6)
    _SEEN[seen] = None
    while len(_SEEN) > _MOST_SEEN:
        del _SEEN[next(iter(_SEEN))]


@contextmanager
def trials() -> Iterator[None]:
    """Within it, nobody is warned of releases that repeat: they are on trial.
    """
    token = _TRIAL.set(True)
    try:
        yield
    finally:
        _TRIAL.reset(token)


# Canonical content: values, not bytes. #


Blocks = Callable[[int, int], Iterator[NDArray[np.uint8]]]


def _canonical(value: Tensor) -> tuple[str, tuple[int, int], Blocks]:
    # A description, rows and columns, and the bytes of the values of some rows,
    # block by block. Integers of all types are the same, and so are floating
    # point numbers; -0.0 is 0.0.
    value = value.detach()
    if value.layout != torch.strided:
        value = value.to_dense()
    if value.is_complex():
        raise TypeError(f"A complex tensor cannot be released "
                        f"(got {value.dtype})")
    flat = value.reshape(1) if value.dim() == 0 else value
    kind = _kind(flat)

    rows, width = grid(tuple(flat.shape))

    def blocks(first: int, last: int) -> Iterator[NDArray[np.uint8]]:
        for start, stop in row_blocks(last, width, first) if width else ():
            block = flat[start:stop].cpu().to(kind)
            if kind.is_floating_point:
                block = block + 0.0
            yield block.contiguous().view(-1).view(torch.uint8).numpy()

    return f'{kind}{tuple(value.shape)}', (rows, width), blocks


def _kind(value: Tensor) -> torch.dtype:
    # The smallest type that holds all values, which the values decide.
    if value.is_floating_point():
        if value.dtype != torch.double:
            return torch.float
        same = all(bool(((part := value[start:stop]).float().double() == part)
                        .all())
                   for start, stop in row_blocks(*grid(tuple(value.shape))))
        return torch.float if same else torch.double
    if value.dtype == torch.bool or value.numel() == 0:
        return torch.int8
    low, high = map(int, value.aminmax())
    for kind in (torch.int8, torch.int16, torch.int32):
        limits = torch.iinfo(kind)
        if limits.min <= low and high <= limits.max:
            return kind
    return torch.int64


def fingerprint(source: NoiseSource, content: Content) -> bytes:
    """A keyed fingerprint of a content: without the key, nobody can test a
    guess against it.
    """
    parts: list[str | bytes] = []
    for name, values in content:
        parts.append(name)
        for value in values:
            kind, (rows, _), blocks = _canonical(value)
            parts += [kind, source.fingerprint(blocks(0, rows))]
    return source.digest('content', *parts)


def digest(*values: Tensor) -> str:
    """The SHA-256 of values, which everybody may compute: of what they are,
    and of the SHA-256 of every :math:`2^{20}` of them, in several threads.

    .. code-block:: python

        digest(torch.tensor([1, 2])) == digest(torch.tensor([1, 2]).int())
    """
    out = hashlib.sha256()
    for value in values:
        kind, (rows, width), blocks = _canonical(value)
        step = max(1, _LEAF // max(width, 1))

        def leaves(first: int, last: int, rows: int = rows, step: int = step,
                   blocks: Blocks = blocks) -> bytes:
            digests = b''
            for start in range(first * step, min(last * step, rows), step):
                leaf = hashlib.sha256()
                for block in blocks(start, min(start + step, rows)):
                    leaf.update(block.data)
                digests += leaf.digest()
            return digests

        out.update(kind.encode() + b'\n' + b''.join(in_threads(
            leaves, -(-rows // step))))
    return out.hexdigest()


# Graphs: their fields, their budgets, and what is known of them. #


def field_name(store: BaseStorage, field: str) -> str:
    """A field's name in the ledger: with its node or edge type."""
    if store._key is None:
        return field
    key = store._key if isinstance(store._key, tuple) else (store._key, )
    return '__'.join(key) + f'.{field}'


def budget_of(data: Any) -> PrivacyBudget | None:
    """The budget of one raw graph. A budget where it would be overlooked is
    refused.
    """
    for store in data.stores:
        if store._key is not None and 'privacy_budget' in store:
            raise ValueError(f"'privacy_budget' belongs to the whole graph, "
                             f"data.privacy_budget = ... (got one on the store "
                             f"{store._key!r})")
    budget = getattr(data, 'privacy_budget', None)
    if budget is None or isinstance(budget, PrivacyBudget):
        return budget
    if budget == 'none':  # What a batch has in the place of none.
        return None
    raise TypeError(f"'privacy_budget' must be a 'PrivacyBudget' "
                    f"(got '{type(budget).__name__}')")


def check_batch(batch: Batch) -> None:
    """Refuses a budget that was put on a batch as a whole."""
    slices = getattr(batch, '_slice_dict', None) or {}
    if 'privacy_budget' in batch and 'privacy_budget' not in slices and (
            'privacy_budget' not in slices.get('_global_store', {})):
        raise ValueError("'privacy_budget' of a batch would be overlooked: one "
                         "budget is for one graph. Give each graph its own "
                         "before they are batched, see PrivacyBudget.for_each")


def added_to(batch: Any, store: BaseStorage) -> list[str]:
    """The fields of a batch's store that belong to none of its graphs."""
    slices = batch._slice_dict
    if store._key is not None:
        slices = slices.get(store._key, {})
    known = {'num_nodes', 'batch', 'ptr', *slices}
    known.update(f'{key}_{end}' for key in slices for end in ('batch', 'ptr'))
    return [key for key in store if key not in known]


def refuse_n_id(data: Any, name: str) -> None:
    """Refuses a batch of raw rows that a loader has sampled."""
    if any('n_id' in store for store in data.stores):
        raise ValueError(
            f"'n_id' tells that the graph is a batch of a larger one, of which "
            f"a loader shows other rows every time, so that {name} would be "
            f"paid for again and again: release the whole graph first, and "
            f"sample batches from the release, which is free")


def paid_before(ledger: PrivacyAccountant,
                fields: dict[str, Callable[[], str]]) -> Release | None:
    """The entry of a release that comes back as input: what is made of it costs
    nothing. A field that the ledger tells of, but that holds something else, is
    refused: it is raw, or was changed.
    """
    wrong = None
    for release in reversed(ledger.releases):
        known = dict(release.outputs)
        if not known.keys() & fields.keys():
            continue
        other = next((name for name, found in fields.items()
                      if name not in known or found() != known[name]), None)
        if other is None:
            return release
        wrong = wrong or (other, release.call)
    if wrong is not None:
        raise ValueError(
            f"'{wrong[0]}' must be as it was released: 'privacy' tells of a "
            f"release by {wrong[1]}, and it holds something else, raw or "
            f"changed. Release from the raw graph, which has no such ledger")
    return None


def check_released(release: Release, name: str, value: Tensor) -> None:
    """Refuses a field that is not what an entry of the ledger tells of."""
    if digest(value) != dict(release.outputs).get(name):
        raise ValueError(f"'{name}' must be what {release.call} released: the "
                         f"ledger tells of other values, so these are raw, or "
                         f"were changed since")


_BAD = ('covered', 'public', 'changed', 'raw')


def verify(ledger: PrivacyAccountant, data: Any,
           public: Iterable[str] = ()) -> dict[str, str]:
    """What is known of each field of a graph: :obj:`"covered"` by an entry of
    the ledger, whose digest it has; :obj:`"public"`, as it is named so;
    :obj:`"changed"` since an entry was written; or :obj:`"raw"`. In a
    heterogeneous graph, :obj:`public` may name a field with its type or without
    it.

    .. code-block:: python

        private = LabelRR(epsilon=1.0, num_classes=7)(data)
        verify(private.privacy, private)['y']   # 'covered'
    """
    known: dict[str, set[str]] = {}
    for release in ledger.releases:
        for name, value in release.outputs:
            known.setdefault(name, set()).add(value)
    names: set[str] = set(public)
    out: dict[str, str] = {}
    if isinstance(data, Batch):
        for graph in data.to_data_list():
            for name, state in verify(ledger, graph, public).items():
                # The worst of all graphs.
                out[name] = max(out.get(name, state), state, key=_BAD.index)
        for store in data.stores:
            for name in (field_name(store, key) for key in added_to(data, store)
                         if key not in ASIDE):
                known_name = names & {name, name.rsplit('.')[-1]}
                out[name] = 'public' if known_name else 'raw'
        return out
    for store in data.stores:
        for key, value in store.items():
            name = field_name(store, key)
            if name in ASIDE:  # Of the graph: a type's own are fields.
                continue
            if name in known:
                dense = isinstance(value, Tensor) and not is_sparse(value)
                good = dense and digest(value) in known[name]
                out[name] = 'covered' if good else 'changed'
            else:
                told = key == 'num_nodes' or names & {name, key}
                out[name] = 'public' if told else 'raw'
    return out


def written(releases: Sequence[Release],
            outputs: dict[str, Tensor]) -> tuple[Release, ...]:
    """Entries that know again what was released."""
    digests = tuple((name, digest(value)) for name, value in outputs.items())
    return tuple(replace(release, outputs=digests) for release in releases)

import contextlib
import gc
import os
import tracemalloc
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.data import (
    Data,
    Database,
    OnDiskDataset,
    SQLiteDatabase,
)
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import Compose

from torch_geometric_dp import (
    PrivacyBudget,
    PrivacyBudgetExceeded,
    noise,
    storage,
    transforms,
)
from torch_geometric_dp.storage import empty, load_rows, on_disk, save_rows

BOUNDS = (0.0, 1.0)
FAMILY = ['Duchi', 'DuchiMulti', 'FeatureRR', 'Gaussian', 'Hybrid', 'Laplace',
          'MultiBit', 'Piecewise', 'PMSub', 'SquareWave', 'ThreeOutputs']
ALL = FAMILY + ['clip', 'GRRFS', 'LabelRR', 'Compose']


def make(name):
    if name == 'GRRFS':
        return transforms.GRRFS(4.0, 1, 2, seed=1)
    if name == 'LabelRR':
        return transforms.LabelRR(4.0, 3, mask='train_mask', seed=1)
    if name == 'clip':
        return transforms.FeatureRR(4.0, (0.25, 0.7), clip=True, seed=1)
    if name == 'Compose':
        return Compose([transforms.Discretize(BOUNDS, 2),
                        transforms.GroupColumns(2),
                        transforms.GRRFS(4.0, 1, 2, seed=1)])
    return getattr(transforms, name)(4.0, BOUNDS, seed=1)


def features(name, rows, columns, dtype=torch.float):
    x = torch.rand(rows, columns, generator=torch.Generator().manual_seed(0))
    return (x.round() if name == 'GRRFS' else x).to(dtype)


@contextlib.contextmanager
def small_blocks(words=16):
    """Many blocks, and no tensor that is too small for a file."""
    with mock.patch.object(noise.source, 'BLOCK_WORDS', words), \
            mock.patch.object(storage, 'BLOCK_CELLS', words), \
            mock.patch.object(storage, 'LEAST_BYTES', 1):
        yield


def mapped(x, folder, order='C'):
    """The same features, in a file."""
    path = os.path.join(folder, 'x.bin')
    np.memmap(path, np.float32, 'w+', shape=tuple(x.shape),
              order=order)[:] = x.numpy()
    return torch.from_numpy(np.memmap(path, np.float32, 'c', order=order,
                                      shape=tuple(x.shape)))


def lies_in_a_file(x):
    """Whether the system has mapped a file where the tensor is."""
    for line in Path('/proc/self/maps').read_text().splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split('-'))
        if first <= x.data_ptr() < last:
            return line.split()[4] != '0'
    raise AssertionError('the tensor lies nowhere')


maps = pytest.mark.skipif(not os.path.exists('/proc/self/maps'),
                          reason='needs /proc/self/maps')


@maps
@pytest.mark.parametrize('name', ALL)
@pytest.mark.parametrize('order', ['C', 'F'])
def test_the_same_release_on_disk(name, order, tmp_path):
    x, y = features(name, 53, 3), torch.arange(53) % 3
    budget = PrivacyBudget(epsilon=8.0, delta=1e-4)

    def graph(x):
        return Data(x=x, y=y, train_mask=y > 0, privacy_budget=budget)

    field = 'y' if name == 'LabelRR' else 'x'
    transform = make(name)
    expected = transform(graph(x))
    raw = mapped(x, tmp_path, order)
    with small_blocks(), on_disk(tmp_path):
        out = transform(graph(raw))
    assert torch.equal(out[field], expected[field])
    assert out.privacy == expected.privacy
    assert not lies_in_a_file(expected[field]) and lies_in_a_file(out[field])
    assert torch.equal(raw, x)
    # Charged once; and what comes from a file is known to be released.
    assert len(budget.spent.releases) == 1
    if name in ('clip', 'FeatureRR', 'GRRFS', 'LabelRR'):
        with small_blocks(), on_disk(tmp_path):
            again = transform(transform(out))
        assert len(again.privacy.releases) == 1
        assert len(budget.spent.releases) == 1


@settings(max_examples=60)
@given(name=st.sampled_from([*FAMILY, 'clip', 'GRRFS', 'Compose']),
       rows=st.integers(0, 20), columns=st.integers(1, 5),
       dtype=st.sampled_from([torch.half, torch.bfloat16, torch.float,
                              torch.double]),
       words=st.integers(1, 64), turned=st.booleans())
def test_any_shape_type_and_block(tmp_path_factory, name, rows, columns, dtype,
                                  words, turned):
    x = features(name, rows, columns, dtype)
    if turned:
        x = x.t().contiguous().t()
    budget = PrivacyBudget(epsilon=4.0, delta=1e-4)
    data = Data(x=x, privacy_budget=budget)
    expected = make(name)(data)
    folder = tmp_path_factory.getbasetemp()
    with small_blocks(words), on_disk(folder):
        out = make(name)(data)
    assert out.x.dtype == expected.x.dtype == dtype
    assert torch.equal(out.x, expected.x)
    assert out.privacy == expected.privacy


class Largest(TorchDispatchMode):
    """The largest tensor that an operation has made, in bytes."""
    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        known = {arg.untyped_storage().data_ptr()
                 for arg in [*args, *(kwargs or {}).values()]
                 if isinstance(arg, torch.Tensor)}
        for value in out if isinstance(out, (tuple, list)) else [out]:
            if (isinstance(value, torch.Tensor)
                    and value.untyped_storage().data_ptr() not in known):
                self.bytes = max(self.bytes, value.untyped_storage().nbytes())
        return out


@pytest.mark.parametrize('name, order', [
    *[(name, 'F') for name in ALL], ('FeatureRR', 'C'), ('GRRFS', 'C')])
def test_nothing_as_large_as_the_features_is_held(name, order, tmp_path,
                                                  monkeypatch):
    # Numpy's memory is traced, and so is what torch makes, in this thread.
    rows = 2**18 if name == 'LabelRR' else 2**15
    x = mapped(features(name, rows, 16), tmp_path, order)
    y = torch.arange(rows) % 3
    transform = make(name)
    data = Data(x=x, y=y, train_mask=y > 0)
    data.privacy_budget = PrivacyBudget(epsilon=8.0, delta=1e-4)
    transform(Data(x=x[:9], y=y[:9], train_mask=y[:9] > 0))  # Compiles.
    monkeypatch.setattr(noise.source, 'BLOCK_WORDS', 2**13)
    monkeypatch.setattr(storage, 'BLOCK_CELLS', 2**13)
    monkeypatch.setattr(storage, 'LEAST_BYTES', 2**15)
    monkeypatch.setattr(torch, 'get_num_threads', lambda: 1)
    before = y.nbytes if name == 'LabelRR' else x.nbytes
    with on_disk(tmp_path), Largest() as largest:
        tracemalloc.start()
        try:
            transform(data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert largest.bytes < before / 3
    assert peak < before / 3


def test_outside_of_it_there_are_no_files(tmp_path):
    missing = tmp_path / 'missing'
    with pytest.raises(ValueError, match="'folder' must be an existing folder "
                       r"\(got '.*missing'\)"), on_disk(missing):
        pass
    with small_blocks():
        with pytest.raises(KeyError), on_disk(tmp_path):
            raise KeyError
        with mock.patch.object(storage, '_map') as _map:
            empty((5, ), torch.float)
            assert not _map.called
        inner = tmp_path / 'inner'
        inner.mkdir()
        real = storage._map
        with mock.patch.object(storage, '_map', side_effect=real) as _map, \
                on_disk(tmp_path):
            with on_disk(inner):
                empty((5, ), torch.float)
            empty((5, ), torch.float)
            empty((0, 3), torch.float)
        assert [call.args[0] for call in _map.call_args_list] == [
            str(inner), str(tmp_path)]


def test_folders_that_cannot_be_written_to(tmp_path):
    # Found out before anything is charged.
    for wrong, reason in (('no file can be made', PermissionError(13, 'No')),
                          ('the disk is full', OSError(28, 'Full'))):
        with mock.patch('tempfile.TemporaryFile', side_effect=reason), \
                pytest.raises(ValueError, match="'folder' must be a folder in "
                              "which files can be made .got '.*: "
                              + reason.strerror), on_disk(tmp_path):
            raise AssertionError(wrong)
    for wrong in (None, 3, b'.'):
        with pytest.raises(TypeError, match="'folder' must be the path of a "
                           f"folder .got '{type(wrong).__name__}'"), \
                on_disk(wrong):
            pass


def test_a_folder_stays_where_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir('here')
    with small_blocks(), on_disk('here'):
        os.chdir('/')
        assert empty((5, ), torch.float).shape == (5, )


@pytest.mark.parametrize('dtype', [torch.bool, torch.uint8, torch.half,
                                   torch.bfloat16, torch.double, torch.long])
def test_empty(dtype, tmp_path):
    for shape in ((), (0, ), (7, ), (0, 3), (3, 0), (2, 3)):
        with small_blocks(), on_disk(tmp_path):
            x = empty(shape, dtype)
        assert x.shape == shape and x.dtype == dtype
        assert x.fill_(1).sum() == x.numel()
    assert os.listdir(tmp_path) == []  # Files without a name.
    assert empty((2, ), dtype, 'meta').device.type == 'meta'


@pytest.mark.skipif(not hasattr(os, 'posix_fallocate'), reason='needs Linux')
def test_a_full_disk_is_an_error(tmp_path):
    with on_disk(tmp_path), pytest.raises(
            OSError, match=f"'folder' must have {2**53:,} bytes left: "
            f".*{tmp_path.name}"):
        empty((2**50, ), torch.double)
    assert os.listdir(tmp_path) == []


def test_saved_and_loaded(graph, tmp_path):
    graph.privacy_budget = PrivacyBudget(epsilon=4.0)
    with small_blocks(), on_disk(tmp_path):
        private = make('FeatureRR')(graph)
    torch.save(private, tmp_path / 'private.pt')
    loaded = torch.load(tmp_path / 'private.pt', mmap=True, weights_only=False)
    assert torch.equal(loaded.x, private.x)
    assert loaded.privacy == private.privacy
    assert loaded.privacy_budget is graph.privacy_budget
    with pytest.raises(PrivacyBudgetExceeded):
        transforms.FeatureRR(4.0, BOUNDS)(graph)
    # Post-processing, which costs nothing.
    wide = transforms.FeatureRR(4.0, BOUNDS)(loaded)
    assert wide.privacy.epsilon('features') == 4.0


class Released(torch.utils.data.Dataset):
    """Graphs that are released to files, in a worker."""
    def __init__(self, data, folder):
        self.data, self.folder = data, folder

    def __len__(self):
        return 3

    def __getitem__(self, index):
        with small_blocks(), on_disk(self.folder):
            return make('FeatureRR')(self.data)


def test_what_lies_on_disk_comes_home_from_workers(graph, tmp_path):
    graph.privacy_budget = PrivacyBudget(epsilon=4.0)
    expected = make('FeatureRR')(graph)
    loader = torch.utils.data.DataLoader(
        Released(graph, tmp_path), num_workers=1, collate_fn=list)
    for [out] in loader:
        assert torch.equal(out.x, expected.x)
        assert out.privacy == expected.privacy


def rows_of(columns, folder, name='x'):
    return SQLiteDatabase(str(folder / f'{name}.db'), name, schema=dict(
        dtype=torch.float, size=(columns, )))


def test_rows_of_a_database(tmp_path):
    x = features('FeatureRR', 53, 3)
    budget = PrivacyBudget(epsilon=4.0)
    transform = transforms.FeatureRR(4.0, BOUNDS)
    expected = transform(Data(x=x, privacy_budget=budget))
    raw, released = rows_of(3, tmp_path), rows_of(3, tmp_path, 'released')
    with small_blocks(), on_disk(tmp_path):
        save_rows(x, raw)
        out = transform(Data(x=load_rows(raw), privacy_budget=budget))
        save_rows(out.x, released)
    assert len(raw) == len(released) == 53
    assert torch.equal(load_rows(raw), x)
    assert torch.equal(load_rows(released), expected.x)
    assert out.privacy == expected.privacy
    assert budget.remaining('features') == 0.0
    # Read again, it is a release, not raw data.
    again = Data(x=load_rows(released), privacy=out.privacy,
                 privacy_budget=budget)
    assert transform(again).privacy.epsilon('features') == 4.0


class Keys(Database):
    """Like PyG's `RocksDatabase`, it does not know how many rows it has."""
    def __init__(self):
        super().__init__(dict(dtype=torch.float, size=(3, )))
        self.held = {}

    def connect(self):
        pass

    def close(self):
        pass

    def insert(self, index, data):
        self.held[index] = data.clone()

    def get(self, index):
        return self.held[index]


def test_rows_of_a_database_that_has_no_length(tmp_path):
    x, database = features('FeatureRR', 53, 3), Keys()
    with small_blocks():
        save_rows(x, database)
        with pytest.raises(ValueError, match="'num_rows' must be stated for a "
                           "database that does not know it .got 'Keys'"):
            load_rows(database)
        assert torch.equal(load_rows(database, 53), x)
        assert torch.equal(load_rows(database, num_rows=20), x[:20])
    with pytest.raises(ValueError, match=r"'num_rows' must be at least 1 "
                       r"\(got 0\)"):
        load_rows(database, 0)
    with pytest.raises(ValueError, match="'database' must be empty .got some"):
        save_rows(x, database)
    known = rows_of(3, tmp_path)
    save_rows(x, known)
    assert torch.equal(load_rows(known, 20), x[:20])
    with pytest.raises(ValueError, match=r"'database' must hold rows from 0 to "
                       r"59 \(got 53 from 0 to 59\)"):
        load_rows(known, 60)


def test_rows_that_cannot_be_loaded(tmp_path):
    database = rows_of(3, tmp_path)
    with pytest.raises(ValueError, match="'database' must hold at least one"):
        load_rows(database)
    database[0] = database[1] = database[3] = torch.ones(3)
    with pytest.raises(ValueError, match=r"'database' must hold rows from 0 to "
                       r"2 \(got 2 from 0 to 2\)"):
        load_rows(database)
    other = SQLiteDatabase(str(tmp_path / 'other.db'), 'other',
                           schema={'y': int})
    other[0] = {'y': 1}
    with pytest.raises(TypeError, match="must hold tensors .got 'dict' in row"):
        load_rows(other)


def test_rows_that_cannot_be_saved(tmp_path):
    database, x = rows_of(3, tmp_path), torch.ones(5, 3)
    # PyG would write their bytes, and read other numbers.
    with pytest.raises(ValueError, match="'x' must be of the type that the "
                       r"schema of 'database' states, torch.float32 \(got "
                       r"torch.int32\)"):
        save_rows(x.int(), database)
    for wrong in (x[:, :2], x[:, 0], x[:, :, None]):
        with pytest.raises(ValueError, match=r"'x' must have rows of the shape "
                           r"that the schema of 'database' states, \[3\]"):
            save_rows(wrong, database)
    assert len(database) == 0
    save_rows(x, database)
    with pytest.raises(ValueError, match=r"'database' must be empty \(got 5"):
        save_rows(x, database)
    wide = SQLiteDatabase(str(tmp_path / 'wide.db'), 'wide', schema=dict(
        dtype=torch.float, size=(-1, 3)))
    save_rows(x.repeat(1, 2).view(5, 2, 3), wide)
    assert load_rows(wide).shape == (5, 2, 3)


@maps
@pytest.mark.parametrize('dtype', [torch.bool, torch.uint8, torch.long,
                                   torch.double])
def test_a_map_that_is_only_read(dtype, tmp_path):
    x = features('GRRFS', 53, 3, dtype)
    path = tmp_path / 'x.bin'
    path.write_bytes(x.numpy().tobytes())
    held = np.memmap(path, x.numpy().dtype, 'r', shape=(53, 3))
    with warnings.catch_warnings():  # That torch could write to it.
        warnings.simplefilter('ignore')
        raw = torch.from_numpy(held)
    for name in ('FeatureRR', 'GRRFS', 'Laplace'):
        budget = PrivacyBudget(epsilon=4.0)
        expected = make(name)(Data(x=x, privacy_budget=budget))
        with small_blocks(), on_disk(tmp_path):
            out = make(name)(Data(x=raw, privacy_budget=budget))
        assert torch.equal(out.x, expected.x)
        assert out.x.dtype == expected.x.dtype and lies_in_a_file(out.x)
        assert out.privacy == expected.privacy


@maps
def test_reconstructions_go_to_files(tmp_path):
    edges = torch.randint(0, 53, (2, 99))
    private = make('GRRFS')(Data(x=features('GRRFS', 53, 3), edge_index=edges))
    for output in ('soft', 'hard', 'expectation'):
        transform = transforms.ReconstructFeatures(2, output)
        expected = transform(private)
        with small_blocks(), on_disk(tmp_path):
            out = transform(private)
        assert torch.equal(out.x, expected.x) and lies_in_a_file(out.x)
        assert out.privacy == expected.privacy


@maps
def test_what_was_begun_is_gone_after_an_error(tmp_path):
    def in_files():
        return Path('/proc/self/maps').read_text().count(str(tmp_path))

    transform = Compose([transforms.Discretize(BOUNDS, 2), lambda data: 1 / 0])
    with small_blocks(), pytest.raises(ZeroDivisionError), on_disk(tmp_path):
        transform(Data(x=features('FeatureRR', 53, 3)))
    gc.collect()
    assert in_files() == 0 and os.listdir(tmp_path) == []
    assert storage._FOLDER.get() is None


class Graphs(OnDiskDataset):
    """Small graphs, each with its budget, in a database."""
    def __init__(self, root, transform=None, before=None, **kwargs):
        self.before = before
        super().__init__(root, transform, log=False, **kwargs)

    def process(self):
        for i in range(5):
            data = Data(x=torch.full((20 + i, 3), i / 4), y=i,
                        edge_index=torch.tensor([[0, 1], [1, 0]]))
            data.privacy_budget = PrivacyBudget(epsilon=4.0)
            # PyG has no `pre_transform` here.
            self.append(data if self.before is None else self.before(data))


class Columns(Graphs):
    """The same, with a schema, which pickles nothing but the ledger."""
    def __init__(self, root, transform=None, before=None):
        super().__init__(root, transform, before, schema={
            'x': dict(dtype=torch.float, size=(-1, 3)), 'y': int,
            'privacy': object, 'privacy_budget': object,
        })

    def serialize(self, data):
        return {key: data.get(key) for key in self.schema}

    def deserialize(self, row):
        return Data(**{key: value for key, value in row.items()
                       if value is not None})


@pytest.mark.parametrize('cls', [Graphs, Columns])
@pytest.mark.parametrize('workers', [0, 2])
def test_a_dataset_on_disk_is_released_once(cls, workers, tmp_path):
    dataset = cls(str(tmp_path), transforms.FeatureRR(4.0, BOUNDS))
    expected = [dataset[i] for i in range(5)]
    dataset.close()
    dataset._db = None  # Workers open it for themselves.
    loader = DataLoader(dataset, batch_size=2, num_workers=workers)
    for _ in range(2):
        graphs = [data for batch in loader for data in batch.to_data_list()]
        for data, known in zip(graphs, expected, strict=True):
            assert torch.equal(data.x, known.x)
            assert data.privacy == known.privacy
            assert data.privacy_budget.remaining('features') == 0.0
    identities = {data.privacy_budget.identity for data in expected}
    assert len(identities) == 5
    # Another instance makes the same release; nobody has left to pay for
    # another one.
    dataset.transform = transforms.FeatureRR(4.0, BOUNDS)
    assert torch.equal(dataset[0].x, expected[0].x)
    dataset.transform = transforms.FeatureRR(2.0, BOUNDS)
    with pytest.raises(PrivacyBudgetExceeded):
        dataset[0]


@pytest.mark.parametrize('cls', [Graphs, Columns])
def test_a_dataset_on_disk_of_released_graphs(cls, tmp_path):
    release = transforms.FeatureRR(4.0, BOUNDS)
    dataset = cls(str(tmp_path), before=release)
    dataset.close()
    dataset = cls(str(tmp_path))
    assert len(dataset) == 5
    for data in dataset:
        assert data.privacy.epsilon('features') == 4.0
        assert data.privacy_budget.remaining('features') == 0.0
        # It is known to be released.
        again = transforms.FeatureRR(4.0, BOUNDS)(data)
        assert again.privacy.epsilon('features') == 4.0

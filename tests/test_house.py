"""The rules of the house: who may import whom, and examples that run."""
import ast
import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import torch_geometric_dp
from torch_geometric_dp.datasets import DigitsGraph
from torch_geometric_dp.transforms import FeatureRR

ROOT = Path(torch_geometric_dp.__file__).parent
# llvmlite is a part of numba.
CORE = {'captum', 'cryptography', 'llvmlite', 'numba', 'numpy', 'pymetis',
        'torch', 'torch_geometric', 'torch_geometric_dp', 'tqdm'}
# What each room may import of ours; rooms that are not listed may import all.
ROOMS = {
    'accountant': {'accountant'},
    'noise': {'_jit', '_sort'},
    'mechanisms': {'mechanisms', 'accountant', 'noise', 'storage', '_jit',
                   '_sort'},
    'hrg': {'hrg', 'accountant', 'noise', '_jit', '_sort'},
    'storage': set(),
    'transforms': {'transforms', 'mechanisms', 'hrg', 'accountant', 'noise',
                   'storage', '_sort'},
    'datasets': {'datasets', 'mechanisms'},
    'explain': {'explain'},
    'nn': {'nn', 'transforms', 'mechanisms', 'accountant', 'noise'},
}


def imports(path, top_level):
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.parametrize('path', sorted(ROOT.rglob('*.py')),
                         ids=lambda path: str(path.relative_to(ROOT)))
def test_imports(path):
    # On import, nothing but the core dependencies.
    for name in imports(path, top_level=True):
        top = name.split('.')[0]
        assert top in CORE or top in sys.stdlib_module_names, name
    # Each room keeps to what it may know.
    room = path.relative_to(ROOT).parts[0].removesuffix('.py')
    for name in imports(path, top_level=False):
        if name.startswith('torch_geometric_dp.') and room in ROOMS:
            assert name.split('.')[1] in ROOMS[room], name


def rooms():
    yield torch_geometric_dp
    for info in pkgutil.iter_modules(torch_geometric_dp.__path__):
        if info.name.startswith('_'):
            continue
        yield importlib.import_module(f'torch_geometric_dp.{info.name}')
    yield importlib.import_module('torch_geometric_dp.nn.models')


def public_names():
    # Rooms that are one file have no `__all__`: all that they define.
    for room in rooms():
        names = getattr(room, '__all__', None) or [
            name for name, value in vars(room).items()
            if getattr(value, '__module__', None) == room.__name__
            and not name.startswith('_') and callable(value)
        ]
        for name in names:
            if (room.__name__.split('.')[-1], name) not in INTERNAL:
                yield room, name


# Described where they are used; nobody types them.
INTERNAL = {('pyg', 'install'), ('noise', 'block_rows'), ('noise', 'grid'),
            ('noise', 'in_threads')}
PUBLIC = list(public_names())


@pytest.mark.parametrize('room, name', PUBLIC,
                         ids=lambda x: getattr(x, '__name__', x))
def test_docstring_examples_run(room, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib = pytest.importorskip('matplotlib')
    matplotlib.use('Agg')
    doc = inspect.getdoc(getattr(room, name))
    assert doc, f'{name} has no docstring'
    blocks = re.findall(r'\.\. code-block:: python\n\n((?:    .*\n?|\n)+)',
                        doc)
    assert blocks, f'{name} has no example'
    space = {other: getattr(module, other) for module, other in PUBLIC}
    # Where a mechanism and a transform have the same name, the one meant is
    # the one at home.
    space.update({other: getattr(module, other) for module, other in PUBLIC
                  if module is room})
    space.update(torch=torch, data=Data(
        x=torch.rand(30, 4), y=torch.arange(30) % 7,
        edge_index=torch.tensor([[0, 1], [1, 0]]),
        train_mask=torch.arange(30) < 20))
    for block in blocks:
        code = textwrap.dedent(block)
        lines = code.splitlines()
        for node in ast.parse(code).body:
            source = '\n'.join(lines[node.lineno - 1:node.end_lineno])
            promised = re.search(r'#\s+([-\d(\'"\[].*)$', source)
            if isinstance(node, ast.Expr) and promised:
                value = eval(compile(ast.Expression(node.value), name, 'eval'),
                             space)
                shown = promised.group(1).split('...')[0].strip('() ')
                assert str(value).strip('() ').startswith(shown), source
            else:
                exec(compile(ast.Module([node], []), name, 'exec'), space)


README = re.findall(r'```python\n(.*?)```', (
    ROOT.parent / 'README.md').read_text(), re.DOTALL)


@pytest.mark.parametrize('block', README, ids=range(len(README)))
def test_blocks_of_the_readme_run(block, tmp_path, monkeypatch):
    # Each by itself, but for what one of them says that others bring along.
    monkeypatch.chdir(tmp_path)
    pytest.importorskip('sklearn')
    space = {}
    if 'model, public' in block:
        data = DigitsGraph()[0]
        space = dict(data=data, public=data.subgraph(data.train_mask),
                     FeatureRR=FeatureRR, encoder=torch.nn.Identity(),
                     model=GCN(64, 8, num_layers=1, out_channels=10))
    exec(compile(block, 'README.md', 'exec'), space)


def test_everything_public_is_exported():
    for room in ('attacks', 'audit', 'datasets', 'hrg', 'mechanisms', 'nn',
                 'nn.models', 'transforms'):
        module = importlib.import_module(f'torch_geometric_dp.{room}')
        assert list(module.__all__) == sorted(module.__all__, key=str.lower)

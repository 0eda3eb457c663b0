"""The rules of the house: who may import whom, and examples that run."""
import ast
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import torch_geometric_dp
from torch_geometric_dp import PrivacyAccountant, PrivacyBudget, plot
from torch_geometric_dp.attacks import LinkTeller
from torch_geometric_dp.audit import audit
from torch_geometric_dp.datasets import DigitsGraph
from torch_geometric_dp.transforms import FeatureRR, LabelRR

ROOT = Path(torch_geometric_dp.__file__).parent
# llvmlite is a part of numba.
CORE = {'captum', 'cryptography', 'llvmlite', 'numba', 'numpy', 'pymetis',
        'torch', 'torch_geometric', 'torch_geometric_dp', 'tqdm'}
# What each room may import of ours; rooms that are not listed may import all.
SMALL = {'_arguments', '_jit', '_sort', '_typing', '_validate'}
LAWS = {'accountant', 'noise', 'graph', 'storage'} | SMALL
ADAPTERS = {'release', 'mechanisms', 'hrg', 'vault', 'pyg'} | LAWS
ROOMS = {
    '_arguments': {'accountant'},
    '_jit': set(),
    '_sort': {'_jit'},
    '_typing': set(),
    '_validate': set(),
    'accountant': set(),
    'vault': {'accountant'},
    'storage': set(),
    'noise': {'_jit', '_sort'},
    'graph': {'noise', '_jit', '_sort', '_typing', '_validate'},
    'mechanisms': LAWS,
    'hrg': LAWS,
    'pyg': {'accountant', 'vault'},
    'release': {'accountant', 'vault', 'noise', 'storage', '_arguments'},
    'transforms': ADAPTERS,
    'nn': ADAPTERS | {'transforms'},
}
EXCEPTIONS = {
    # For the sake of the name that users type, `ledger.verify(data)`.
    ('accountant/ledger.py', 'torch_geometric_dp.release'),
    # Counts in blocks are a mechanism like the others, and speak as they do.
    ('hrg/release.py', 'torch_geometric_dp.mechanisms.mechanism'),
}


def imports(path, top_level=False):
    """Modules, and the names that are imported from them."""
    tree = ast.parse(path.read_text())
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            if node.module == 'torch_geometric_dp':  # Rooms, by their names.
                yield from ((f'{node.module}.{name}', ()) for name in names)
            else:
                yield node.module, names


FILES = pytest.mark.parametrize('path', sorted(ROOT.rglob('*.py')),
                                ids=lambda path: str(path.relative_to(ROOT)))


def room_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix('.py')


@FILES
def test_imports(path):
    # On import, nothing but the core dependencies.
    for name, _ in imports(path, top_level=True):
        top = name.split('.')[0]
        assert top in CORE or top in sys.stdlib_module_names, name
    # Each room keeps to what it may know.
    room, file = room_of(path), path.relative_to(ROOT).as_posix()
    for name, _ in imports(path):
        if name.startswith('torch_geometric_dp.') and room in ROOMS and (
                (file, name) not in EXCEPTIONS):
            assert name.split('.')[1] in {room} | ROOMS[room], name


@FILES
def test_no_room_imports_a_private_name_of_another(path):
    for name, parts in imports(path):
        package, *modules = name.split('.')
        if package == 'torch_geometric_dp' and modules[:1] != [room_of(path)]:
            # Files with an underscore belong to the whole house.
            private = [part for part in (*modules[1:], *parts)
                       if part.startswith('_')]
            assert not private, name


def run(code, **environment):
    return subprocess.run([sys.executable, '-c', code], cwd=ROOT.parent,
                          env=os.environ | environment, capture_output=True,
                          text=True)


def test_captum_is_for_explanations_alone():
    done = run('import sys\n'
               'import torch_geometric_dp.attacks, torch_geometric_dp.plot\n'
               'assert "captum" not in sys.modules')
    assert done.returncode == 0, done.stderr


def test_import_needs_no_writable_folder(tmp_path):
    # Root may write everywhere, but not into a folder that is a file. Numba,
    # which asks for the folder of the package, too, is told so.
    (tmp_path / 'file').touch()
    nowhere = str(tmp_path / 'file' / 'folder')
    done = run('''
from numba.core import caching
def refuse(self):
    raise PermissionError(self.get_cache_path())
caching._CacheLocator.ensure_cache_path = refuse
import torch_geometric_dp.transforms, torch_geometric_dp.nn.models
import torch_geometric_dp.audit, torch_geometric_dp.attacks
from torch_geometric_dp.noise import NoiseSource, discrete_laplace
print(discrete_laplace(NoiseSource.from_seed(0), 3.0, 5).shape)
''', HOME=nowhere, XDG_CACHE_HOME=nowhere, TMPDIR=nowhere)
    assert done.returncode == 0, done.stderr
    assert done.stdout == '(5,)\n'


@pytest.mark.parametrize('package, extra, call', [
    ('dp_accounting', 'accounting',
     lambda: PrivacyAccountant().epsilon('labels', 1e-5, method='rdp')),
    ('matplotlib.pyplot', 'plot', plot.axes),
    ('scipy', 'plot', lambda: plot.interval([1.0, 2.0])),
    ('scipy.special', 'audit', lambda: audit(LabelRR(1.0, num_classes=2))),
    ('sklearn.datasets', 'attacks', DigitsGraph),
    ('sklearn.metrics', 'attacks', LinkTeller),
    ('psycopg', 'vault',
     lambda: PrivacyBudget.open('postgresql://localhost/people')),
])
def test_what_is_missed_is_named(package, extra, call, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=re.escape(
            f"pip install 'torch_geometric_dp[{extra}]'")):
        call()
    with (ROOT.parent / 'pyproject.toml').open('rb') as file:
        extras = tomllib.load(file)['project']['optional-dependencies']
    name = {'dp_accounting': 'dp-accounting', 'sklearn': 'scikit-learn'}
    top = package.split('.')[0]
    assert any(need.startswith(name.get(top, top)) for need in extras[extra])


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
        for name in names:  # Types and numbers have no docstrings.
            if inspect.isroutine(value := getattr(room, name)) or (
                    inspect.isclass(value)):
                yield room, name


def leave_nothing(folder, monkeypatch):
    # Files, vaults, and what is remembered of them.
    monkeypatch.chdir(folder)
    monkeypatch.setenv('TORCH_GEOMETRIC_DP_STATE', str(folder / 'state'))
    monkeypatch.delenv('TORCH_GEOMETRIC_DP_SECRET', raising=False)


# Machinery, which nobody types: it is described, with an example where one
# helps. All other names are for users, and have one.
MACHINERY = {'noise', 'pyg', 'release'}
PUBLIC = list(public_names())


@pytest.mark.parametrize('room, name', PUBLIC,
                         ids=lambda x: getattr(x, '__name__', x))
def test_docstring_examples_run(room, name, tmp_path, monkeypatch):
    leave_nothing(tmp_path, monkeypatch)
    matplotlib = pytest.importorskip('matplotlib')
    matplotlib.use('Agg')
    doc = inspect.getdoc(getattr(room, name))
    assert doc, f'{name} has no docstring'
    blocks = re.findall(r'\.\. code-block:: python\n\n((?:    .*\n?|\n)+)',
                        doc)
    assert blocks or room.__name__.split('.')[-1] in MACHINERY, (
        f'{name} has no example')
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
            promised = re.search(
                r'#\s+([-\d(\'"\[{].*|True|False|None|inf)$', source)
            if isinstance(node, ast.Expr) and promised:
                value = eval(compile(ast.Expression(node.value), name, 'eval'),
                             space)
                shown = promised.group(1).split('...')[0].strip('() ')
                assert any(text.strip('() ').startswith(shown)
                           for text in (str(value), repr(value))), source
            else:
                exec(compile(ast.Module([node], []), name, 'exec'), space)


# Code, and what it prints, if the next block shows it.
README = re.findall(r'```python\n(.*?)```\n(?:\n```\n(.*?)```)?', (
    ROOT.parent / 'README.md').read_text(), re.DOTALL)


@pytest.mark.parametrize('block, shown', README, ids=range(len(README)))
def test_blocks_of_the_readme_run(block, shown, tmp_path, monkeypatch, capsys):
    # Each by itself, but for what one of them says that others bring along.
    leave_nothing(tmp_path, monkeypatch)
    pytest.importorskip('sklearn')
    space = {}
    if 'model, public' in block:
        data = DigitsGraph()[0]
        space = dict(data=data, public=data.subgraph(data.train_mask),
                     FeatureRR=FeatureRR, encoder=torch.nn.Identity(),
                     model=GCN(64, 8, num_layers=1, out_channels=10))
    exec(compile(block, 'README.md', 'exec'), space)
    assert shown in capsys.readouterr().out


def test_everything_public_is_exported():
    for room in ('attacks', 'audit', 'datasets', 'hrg', 'mechanisms', 'nn',
                 'nn.models', 'transforms', 'vault'):
        module = importlib.import_module(f'torch_geometric_dp.{room}')
        assert list(module.__all__) == sorted(module.__all__, key=str.lower)

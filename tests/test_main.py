import json
import os
import subprocess
import sys

import pytest

from tests.accountant.test_ledger import release
from torch_geometric_dp import PrivacyBudget, VaultError
from torch_geometric_dp.__main__ import main


@pytest.fixture
def vault(tmp_path, monkeypatch):
    """A vault with two budgets, of which one was drawn on."""
    monkeypatch.setenv('TORCH_GEOMETRIC_DP_STATE', str(tmp_path / 'state'))
    monkeypatch.delenv('TORCH_GEOMETRIC_DP_SECRET', raising=False)
    path = tmp_path / 'some.vault'
    budget = PrivacyBudget.open(path, 'people', epsilon=8.0)
    budget.bind('slot', b'c' * 32, b'n' * 32, [release('a', 1.5)])
    budget.raise_caps('the board said so', labels=9.0)
    PrivacyBudget.open(path, 'things', edges=2.0, delta=1e-5)
    return path


def test_text(vault, capsys):
    assert main(['budget', str(vault)]) == 0
    people, things = capsys.readouterr().out.split('\n\n')
    left, where, head, rule, made, paid, raised = people.splitlines()
    assert left == ('PrivacyBudget(features=8 of 8, labels=7.5 of 9, '
                    'edges=8 of 8 left)')
    assert where == f"'people', in {vault}"
    assert head.split() == ['when', '(UTC)', 'who', 'protects', 'epsilon',
                            'what']
    assert set(rule) == {'-', ' '}
    assert made.endswith('caps: features=8, labels=8, edges=8')
    assert paid.split()[3:] == ['labels', '1.5', "Mechanism(name='a')"]
    assert f':{os.getpid()} ' in paid
    assert raised.endswith('edges=8 (the board said so)')
    assert things.startswith('PrivacyBudget(edges=2 of 2 left)\n')
    assert 'delta = 1e-05' in things
    assert main(['budget', str(vault), '--name', 'things']) == 0
    assert capsys.readouterr().out == things


def test_a_budget_says_the_same(vault, capsys):
    main(['budget', str(vault), '--name', 'people'])
    text = str(PrivacyBudget.open(vault, 'people'))
    assert capsys.readouterr().out == f'{text}\n'


def test_json(vault, capsys):
    assert main(['budget', str(vault), '--json']) == 0
    out = json.loads(capsys.readouterr().out)
    assert out['store'] == str(vault)
    people, things = out['budgets']
    history = people.pop('history')
    assert people == dict(
        name='people', caps=dict(features=8.0, labels=9.0, edges=8.0),
        left=dict(features=8.0, labels=7.5, edges=8.0), delta=0.0,
        max_degree=None)
    assert [line['number'] for line in history] == [1, 2, 3]
    assert history[0]['caps'] == dict.fromkeys(people['caps'], 8.0)
    assert history[1]['protects'] == 'labels'
    assert history[1]['epsilon'] == 1.5
    assert history[2]['what'].endswith('(the board said so)')
    assert things['name'] == 'things' and things['delta'] == 1e-5


def test_no_cap_is_null(vault, capsys):
    PrivacyBudget.open(vault, 'free', labels=float('inf'))
    assert main(['budget', str(vault), '--name', 'free', '--json']) == 0
    budget, = json.loads(capsys.readouterr().out)['budgets']
    assert budget['caps'] == budget['left'] == {'labels': None}


def test_figure(vault, tmp_path):
    matplotlib = pytest.importorskip('matplotlib')
    matplotlib.use('Agg')
    path = tmp_path / 'figure.png'
    assert main(['budget', str(vault), '--figure', str(path)]) == 0
    assert path.read_bytes().startswith(b'\x89PNG')


def test_a_missing_vault_is_not_made(tmp_path, capsys):
    path = tmp_path / 'none.vault'
    assert main(['budget', str(path)]) == 1
    out, error = capsys.readouterr()
    assert out == '' and error == f"error: There is no vault '{path}'\n"
    assert list(tmp_path.iterdir()) == []


def test_something_else_stays_as_it_is(tmp_path, capsys):
    path = tmp_path / 'letter.txt'
    path.write_text('Dear Sir')
    assert main(['budget', str(path)]) == 1
    assert 'something else' in capsys.readouterr().err
    assert path.read_text() == 'Dear Sir'
    assert list(tmp_path.iterdir()) == [path]


def run(vault, *more):
    # A process of its own has not seen the secret.
    return subprocess.run(
        [sys.executable, '-m', 'torch_geometric_dp', 'budget', str(vault),
         *more], capture_output=True, text=True)


def test_a_missing_secret(vault, tmp_path):
    key = tmp_path / 'some.vault.key'
    elsewhere = key.rename(tmp_path / 'key')
    done = run(vault)
    assert done.returncode == 1 and done.stdout == ''
    assert done.stderr.startswith('error: The secret of this vault is not')
    assert 'Traceback' not in done.stderr
    assert not key.exists()
    done = run(vault, '--secret', str(elsewhere), '--name', 'people')
    assert done.returncode == 0, done.stderr
    assert 'labels=7.5 of 9' in done.stdout


def test_a_missing_name(vault, capsys):
    assert main(['budget', str(vault), '--name', 'nobody']) == 1
    assert "'nobody' is no budget of" in capsys.readouterr().err
    assert run(vault, '--wrong').returncode == 2


def test_it_changes_nothing(vault):
    budget = PrivacyBudget.open(vault, 'people')
    before = [line.number for line in budget.history()]
    for more in ((), ('--json', )):
        assert main(['budget', str(vault), *more]) == 0
    assert [line.number for line in budget.history()] == before
    assert budget.remaining('labels') == 7.5


def test_a_vault_without_budgets_gets_no_keys(tmp_path, capsys):
    from torch_geometric_dp.vault import SQLiteStore
    store = SQLiteStore(tmp_path / 'empty.vault', create=True)
    assert main(['budget', store.address]) == 1
    assert 'has no budgets' in capsys.readouterr().err
    assert store.run('', lambda transaction, again: transaction.load()) == {}
    assert not (tmp_path / 'empty.vault.key').exists()


def test_a_database_without_a_vault_gets_no_tables(capsys):
    url = os.environ.get('TORCH_GEOMETRIC_DP_POSTGRES')
    if url is None:
        pytest.skip("'TORCH_GEOMETRIC_DP_POSTGRES' is not set")
    psycopg = pytest.importorskip('psycopg')
    name = f'looks_{os.getpid()}'
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE {name}')
        other = f"{url.rpartition('/')[0]}/{name}"
        try:
            assert main(['budget', other]) == 1
            assert 'There is no vault in' in capsys.readouterr().err
            with psycopg.connect(other) as second:
                assert second.execute(
                    "SELECT to_regnamespace('torch_geometric_dp')"
                ).fetchone() == (None, )
        finally:
            connection.execute(f'DROP DATABASE {name} WITH (FORCE)')


def test_html_is_escaped(vault):
    budget = PrivacyBudget.open(vault, 'a <b>', labels=1.0)
    budget.raise_caps('<script>alert(1)</script>', labels=2.0)
    html = budget._repr_html_()
    assert '<script>' not in html and '&lt;script&gt;' in html
    assert '&#x27;a &lt;b&gt;&#x27;' in html
    assert '<tr><td>labels</td><td>2</td><td>2</td></tr>' in html
    assert html.count('<tr>') == 2 + 3


def test_nobody_forges_a_line(vault):
    budget = PrivacyBudget.open(vault, 'a\nb', labels=1.0)
    budget.raise_caps('because\n2026-01-01  somebody  else\x1b[2J', labels=2.0)
    text = str(budget)
    assert text.isascii() and '\x1b' not in text
    assert len(text.splitlines()) == 6
    assert r"'a\nb', in" in text and r'because\n2026-01-01' in text


def test_a_long_history_is_cut_in_a_browser_alone(vault):
    budget = PrivacyBudget.open(vault, 'long', labels=1.0)
    for _ in range(104):
        budget.raise_caps('again', labels=1.0)
    assert budget._repr_html_().count('again') == 100
    assert '5 earlier entries are in history()' in budget._repr_html_()
    assert str(budget).count('again') == 104


def test_a_temporary_budget_says_so():
    budget = PrivacyBudget(epsilon=1.0, node=3.0, max_degree=50)
    assert budget.name is None
    assert str(budget).splitlines()[1:3] == [
        'temporary: it goes with the process that made it', 'max_degree = 50']
    assert 'temporary' in budget._repr_html_()


def test_a_vault_that_is_gone_can_be_printed(vault):
    budget = PrivacyBudget.open(vault, 'people')
    for path in vault.parent.glob('some.vault*'):
        path.unlink()
    with pytest.raises(VaultError):
        budget.history()
    assert str(budget).startswith('PrivacyBudget(its vault is gone): There is')
    assert 'its vault is gone' in budget._repr_html_()

"""What the numbers were measured on, and with which versions."""
import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from torch_geometric_dp import __version__

PACKAGES = ('numpy', 'torch', 'torch-geometric', 'numba',
            'cryptography', 'pymetis', 'scipy', 'diffprivlib',
            'multi-freq-ldpy', 'pure-ldp', 'opendp')


def machine():
    """The processor, its cores, the memory and the versions of all that is
    measured; what is not installed is left out.
    """
    memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    return {'processor': _processor(), 'cores': os.cpu_count(),
            'memory': f'{memory / 2**30:.1f} GiB',
            'system': f'{platform.system()} {platform.machine()}',
            'python': platform.python_version(),
            'torch_geometric_dp': __version__, **_versions()}


def _processor():
    info = Path('/proc/cpuinfo')
    names = [line.split(':')[1].strip() for line in
             (info.read_text().splitlines() if info.exists() else [])
             if line.startswith('model name')]
    return names[0] if names else platform.processor() or 'unknown'


def _versions():
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    igraph = igraph_version()
    return found if igraph is None else {**found, 'igraph (R)': igraph}


def igraph_version():
    """That of R's igraph, or nothing where there is none."""
    if shutil.which('Rscript') is None:
        return None
    answer = subprocess.run(
        ['Rscript', '-e', 'cat(as.character(packageVersion("igraph")))'],
        capture_output=True, text=True)
    return answer.stdout.strip() if answer.returncode == 0 else None

"""Speed, as ratios that were measured side by side in one run, and the tables
of the papers.
"""
import warnings

# Here, one graph is released again and again, on purpose.
warnings.filterwarnings('ignore', '.* without a budget: noise that is drawn')

SUITES = ('noise', 'labels', 'features', 'edges', 'layers', 'reconstruction',
          'scale', 'hrg')

"""Speed, as ratios that were measured side by side in one run."""

SUITES = ('noise', 'labels', 'features', 'edges', 'layers', 'reconstruction',
          'scale', 'hrg')

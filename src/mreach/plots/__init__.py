"""Pictures of a fit, by matplotlib.

Each function draws into the axes given, or into a new figure, and returns the axes. None shows a figure or
changes a setting of matplotlib. What a picture shows can be had as numbers from :mod:`mreach.plot_data`.
"""

from mreach.plots.dendrogram import single_linkage_tree
from mreach.plots.icicle import condensed_tree
from mreach.plots.profile import cluster_profile
from mreach.plots.spanning_tree import minimum_spanning_tree

__all__ = ["cluster_profile", "condensed_tree", "minimum_spanning_tree", "single_linkage_tree"]

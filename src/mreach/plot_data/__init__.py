"""What the plots show, as numbers: a function for each plot. Nothing here draws, and nothing is recursive."""

from mreach.plot_data.condensed_tree import CondensedTreeData, condensed_tree_bars, condensed_tree_data
from mreach.plot_data.linkage import LinkageData, linkage_data
from mreach.plot_data.profile import ClusterProfile, cluster_profile_data
from mreach.plot_data.scale import Scale
from mreach.plot_data.spanning_tree import SpanningTreeData, spanning_tree_data

__all__ = [
    "ClusterProfile",
    "CondensedTreeData",
    "LinkageData",
    "Scale",
    "SpanningTreeData",
    "cluster_profile_data",
    "condensed_tree_bars",
    "condensed_tree_data",
    "linkage_data",
    "spanning_tree_data",
]

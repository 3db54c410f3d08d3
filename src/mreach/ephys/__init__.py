"""A spike sorter's step: clips of isolated spikes, without outliers, and templates made of them.

:func:`extract_clips` cuts clips out of a recording, :func:`remove_outlier_clips` drops those that belong
nowhere, and :func:`universal_templates` makes of the rest what Kilosort4 and EMUsort detect spikes with;
:func:`save_templates` and :func:`load_templates` keep that in their file format.
"""

from mreach.ephys.clips import Clips, extract_clips
from mreach.ephys.outliers import KeptClips, remove_outlier_clips
from mreach.ephys.problems import ClipsError, ClipsWarning
from mreach.ephys.templates import UniversalTemplates, load_templates, save_templates, universal_templates

__all__ = [
    "Clips",
    "ClipsError",
    "ClipsWarning",
    "KeptClips",
    "UniversalTemplates",
    "extract_clips",
    "load_templates",
    "remove_outlier_clips",
    "save_templates",
    "universal_templates",
]

"""Code that calls the HDBSCAN of scikit-learn or hdbscan, computed by mreach without a change to it.

``python -m mreach.accel script.py args...`` (or ``-m module args...``) runs a program so, :func:`install`
does it for a running process and :func:`uninstall` undoes it.

After :func:`install`, ``sklearn.cluster.HDBSCAN`` and ``hdbscan.HDBSCAN`` are subclasses of the originals
whose ``fit`` is computed by :class:`mreach.HDBSCAN`. Parameters, defaults, ``min_samples``, labels of rows
that are not finite and fitted attributes are those of the library; the fitted :class:`mreach.HDBSCAN` is
there as ``mreach_``. What mreach cannot do is left to the original class, and the logger ``mreach.accel``
says why. Nothing else of the two libraries is changed.
"""

from mreach.accel.hook import install, uninstall

__all__ = ["install", "uninstall"]

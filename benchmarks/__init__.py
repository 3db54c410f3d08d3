"""Benchmarks of mreach: registered workloads, peers side by side, a correctness gate before every timing.

Run ``python -m benchmarks list``, ``run``, ``gate``, ``figures`` or ``gpu``; each takes ``--help``.
"""

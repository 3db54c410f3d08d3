# The compiled core (cpp/bind.cpp); its callers, backends/cpu.py and hierarchy/, state what they pass and get.
from typing import Any

def __getattr__(name: str) -> Any: ...

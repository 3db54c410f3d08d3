# make demo, make test and make bench each make .venv if there is none and install there what they need.
# PYTHON=/path/to/python chooses the interpreter for .venv; else the first one found from 3.10 on.

VENV    := .venv
BIN     := $(VENV)/bin
PYTHON  ?=
BENCH   ?= figures --output benchmarks/results
SOURCES := pyproject.toml CMakeLists.txt README.md LICENSE \
	$(shell find src cpp -type f ! -name '*.pyc' ! -name '*.so' 2>/dev/null)

.PHONY: test demo bench clean
.DELETE_ON_ERROR:

# Run against the installed package: from here, "import mreach" finds .venv, not src/.
test: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto --dist loadfile --doctest-modules --pyargs tests docs README.md mreach

demo: $(VENV)/.installed
	$(BIN)/python demo/emg_clips.py

bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks $(BENCH)

clean:
	rm -rf $(VENV) build demo-output

$(VENV)/.installed: $(SOURCES) | $(VENV)/.created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check ".[test,plot,frames,files]"
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check ".[test,plot,frames,files,bench]"
	@touch $@

$(VENV)/.created:
	@set -e; chosen=""; \
	for candidate in $(PYTHON) $(if $(PYTHON),,python3 python3.13 python3.12 python3.11 python3.10 python3.14 python); do \
		if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; \
		then chosen="$$candidate"; break; fi; \
	done; \
	if [ -z "$$chosen" ]; then \
		echo "No Python >= 3.10 with the venv module was found$(if $(PYTHON), at $(PYTHON))." >&2; \
		echo "Install one (on Debian and Ubuntu: apt install python3 python3-venv), or name it: make PYTHON=/path/to/python" >&2; \
		exit 1; \
	fi; \
	echo "Making $(VENV) with $$("$$chosen" --version) ($$chosen)"; \
	rm -rf $(VENV); "$$chosen" -m venv $(VENV)
	@touch $@

# One word per chore. Everything is installed into .venv from the project's own files.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The package etcd3 wants an older protobuf than others do: an environment that differs from .venv in that.
ETCD3 := .venv-etcd3

.PHONY: run test check chaos clean

run: $(STAMP)
	$(BIN)/cerebro run recipes/digits.yaml

test: $(STAMP) $(ETCD3)/.installed
	$(BIN)/python -m pytest
	$(ETCD3)/bin/python -m pytest tests/store -k 'grpc and not TestEtcdClusterStore and not restored'

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A storm of faults: make chaos SEED=7 [FAULTS=60] [ETCD=3]
SEED ?= 1
FAULTS ?= 60
ETCD ?= 1
chaos: $(STAMP)
	$(BIN)/python -m cerebro_elastic.testing.chaos --seed $(SEED) --faults $(FAULTS) --etcd $(ETCD)

# Bytecode is compiled once at installation: importing torch without it costs seconds every time.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e '.[dev]'
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	touch $@

$(ETCD3)/.installed: $(STAMP)
	$(PYTHON) -m venv $(ETCD3)
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" \
		> $$($(ETCD3)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/base.pth
	$(ETCD3)/bin/python -m pip install --quiet -c constraints.txt 'cerebro-elastic[etcd3]'
	touch $@

clean:
	rm -rf $(VENV) $(ETCD3) runs .mypy_cache .ruff_cache .pytest_cache .hypothesis

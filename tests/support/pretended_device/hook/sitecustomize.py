"""Python with a pretended device: right after torch is imported, it has one (``$PRETENDED_LIBRARY``)."""

import ctypes
import importlib.abc
import importlib.machinery
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location


class _AfterTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, _target=None):
        if name != "torch" or path is not None:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name)
        load = spec.loader.exec_module
        # Torch asks once, while it is imported, for the hooks that the library registers.
        lib = os.path.join(os.path.dirname(spec.origin), "lib")
        for each in ("libc10.so", "libtorch_cpu.so", "libtorch.so", "libtorch_python.so"):
            ctypes.CDLL(os.path.join(lib, each), ctypes.RTLD_GLOBAL)
        ctypes.CDLL(os.environ["PRETENDED_LIBRARY"])

        def exec_module(module):
            load(module)
            _pretend()

        spec.loader.exec_module = exec_module
        return spec


def _pretend():
    file = os.environ["PRETENDED_LIBRARY"]
    library = _loaded(os.path.basename(file).partition(".")[0], file)
    python = _loaded("pretended_device_python", os.path.join(os.path.dirname(__file__), "..", "device.py"))
    python.as_cuda(library) if file.endswith("CUDA.so") else python.as_private_use(library)


def _loaded(name, file):
    spec = spec_from_file_location(name, file)
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if "PRETENDED_LIBRARY" in os.environ:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # of kernels that take the place of torch's
    sys.meta_path.insert(0, _AfterTorch())

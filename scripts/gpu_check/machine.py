# SPDX-License-Identifier: Apache-2.0
"""What this machine has: the device, the compilers, and CUDA's libraries, of the toolkit or of a Python's packages."""
import contextlib
import functools
import glob
import os
import platform
import shutil
import subprocess
import sysconfig
import typing

# Places that are often not on PATH or known to the loader.
DRIVER_PLACES = ["/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64",
                 "/usr/lib/wsl/lib"]
PROGRAM_PLACES = ["/usr/local/cuda/bin", "/usr/local/nvidia/bin", "/usr/local/cuda/compute-sanitizer"]
IMPORT_SECONDS = 300  # a first import reads gigabytes, from a disk that may be far


class Import(typing.NamedTuple):
    version: str  # empty where it cannot be imported
    timed_out: bool = False

    def __str__(self):
        return self.version or ("not known, the import took too long" if self.timed_out else "none")


def add_usual_places():
    """On PATH from here on, for this process and those that it starts."""
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(places + [place for place in PROGRAM_PLACES if place not in places])


def output_of(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def device():
    """The first device's name, memory and driver, or nothing."""
    text = output_of("nvidia-smi", "--query-gpu=name,memory.total,driver_version,compute_cap", "--format=csv,noheader")
    return text.splitlines()[0] if text else ""


def has(program):
    return shutil.which(program) is not None


@functools.cache
def can_import(module):
    """What `python3` says of the module. Asked once: it takes long."""
    try:
        done = subprocess.run(["python3", "-c", f"import {module}; print({module}.__version__)"], capture_output=True,
                              text=True, check=False, timeout=IMPORT_SECONDS)
    except subprocess.TimeoutExpired:
        return Import("", True)
    except OSError:
        return Import("")
    return Import(done.stdout.strip() if done.returncode == 0 else "")


def _python_places():
    """nvidia/*/lib of the Python that `python3` starts."""
    folder = output_of("python3", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    folder = folder or sysconfig.get_path("purelib")
    return sorted(glob.glob(os.path.join(folder, "nvidia", "*", "lib")))


def _toolkit_places():
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_ROOT"), "/usr/local/cuda"]
    nvcc = shutil.which("nvcc")
    if nvcc:
        roots.append(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))))
    return [os.path.join(root, part) for root in roots if root for part in ("lib64", "lib", "targets/x86_64-linux/lib")]


def _known_to_loader():
    """Names in ldconfig's cache."""
    lines = (output_of("ldconfig", "-p") or output_of("/sbin/ldconfig", "-p")).splitlines()
    return {line.split()[0] for line in lines if " => " in line}


def find_libraries(names):
    """Library to its path on this machine, empty where the loader finds it by itself; what is not here is absent."""
    loader = _known_to_loader()
    places = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) + _toolkit_places() + _python_places() + DRIVER_PLACES
    found = {}
    for name in names:
        candidates = [os.path.join(place, name) for place in places if place]
        path = "" if name in loader else next((path for path in candidates if os.path.exists(path)), None)
        if path is not None:
            found[name] = path
    return found


def numbers_of(version):
    return [int(part) for part in version.split(".") if part.isdigit()]


def libc_version():
    return numbers_of(platform.libc_ver()[1])


MOST_SHARING = 48  # clients that the Multi-Process Service lets in


@contextlib.contextmanager
def shared_device():
    """While processes share the device: a daemon of NVIDIA's Multi-Process Service, if there is one and none runs yet; tells whether it
    has begun. Without it processes take turns of milliseconds, which tests of small kernels wait for. A fault of one may end all."""
    control = shutil.which("nvidia-cuda-mps-control")
    has_begun = control is not None and _succeeds([control, "-d"])
    try:
        yield has_begun
    finally:
        if has_begun:
            _succeeds([control], "quit -t 10\n")


def _succeeds(command, text=""):
    try:
        return subprocess.run(command, input=text, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
                              timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def facts():
    return {"cores": len(os.sched_getaffinity(0)), "system": platform.platform(), "libc": " ".join(platform.libc_ver()),
            "nvcc": next((line for line in output_of("nvcc", "--version").splitlines() if "release" in line), "none")}


def python_facts():
    """Takes as long as the imports."""
    torch = can_import("torch")
    geometric = can_import("torch_geometric") if torch.version else Import("")  # which imports torch too
    return {"torch": str(torch), "torch_geometric": str(geometric)}

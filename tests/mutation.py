"""Mutation testing of the core: each mutant is one fault that people really make, and some test must see it.

`python tests/mutation.py [WORD ...]` builds a copy of the tree in build/mutation, where it takes the mutants one after
the other (those that contain one of the words, where any are given) and prints the test that saw each: it asks the
nearest test first, then the fast Python tests, then the C++ tests. It fails if a mutant survives them all.

CUDA_INCLUDES, folders with cuda_runtime.h and curand_kernel.h separated by `;`, adds the mutants of the CUDA mapping.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build/mutation"
PYTHON_TESTS = [f"tests/test_{name}.py" for name in ("padding", "serving", "ops", "noise", "seed", "streams")]
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where ninja and cmake are
CUDA_INCLUDES = os.environ.get("CUDA_INCLUDES", "")
NO_COMPILE = "DOES NOT COMPILE"


class Mutant(NamedTuple):
    """One change of one file; the old text occurs there once. The test that should see it is asked first."""

    file: str
    old: str
    new: str
    near: str  # a test of tests/, or one of the programs of tests/cpp


MUTANTS = [
    # Runs and segments: seams, rows, truncation.
    Mutant("csrc/core/runs.h", "start[run] < 0 ? 0 : start[run]", "start[run]", "runs_test"),
    Mutant("csrc/core/runs.h", "run_numel - begin % run_numel", "run_numel", "runs_test"),
    Mutant(
        "csrc/core/runs.h",
        "static_cast<std::uint64_t>(position / chunk_size)",
        "std::uint32_t(position / chunk_size)",
        "test_serving.py::test_huge_chunks_and_positions",
    ),
    # The hash of seeds: constants, halves, high words.
    Mutant(
        "csrc/include/chunked_noise/seed.h",
        "high << 32 | low",
        "std::uint64_t{low} << 32 | high",
        "test_seed.py::test_known_values",
    ),
    Mutant(
        "csrc/include/chunked_noise/seed.h", "+ key_high + index_high", "+ key_high", "test_seed.py::test_known_values"
    ),
    # The range of padded chunks.
    Mutant(
        "csrc/include/chunked_noise/chunking.h",
        "void operator++(int) { ++index_; }",
        "void operator++(int) {}",
        "api_test",
    ),
    Mutant("csrc/include/chunked_noise/chunking.h", "return {this, size()}", "return {this, size() - 1}", "api_test"),
    # The generator: words at the ends of its state.
    Mutant("csrc/core/mt19937.h", "second & 0x7FFFFFFFu", "second", "cpu_kernel_test"),
    Mutant("csrc/core/mt19937.h", "(previous >> 30)", "(previous >> 31)", "cpu_kernel_test"),
    Mutant("csrc/cpu/generator.h", "while (available(word) <= 0)", "while (available(word) < 0)", "cpu_kernel_test"),
    Mutant("csrc/cpu/generator.h", "words + mt19937::far_word;", "words + mt19937::far_word - 1;", "cpu_kernel_test"),
    Mutant("csrc/cpu/generator.h", "(near_word + width - 1) / width", "near_word / width", "cpu_kernel_test"),
    Mutant("csrc/cpu/generator.h", "return word >= first_word_;", "return true;", "cpu_kernel_test"),
    # The kernels: tails, windows, halves, rounding.
    Mutant("csrc/cpu/normal_kernel.h", "buffered = !std::is_same_v", "buffered = std::is_same_v", "cpu_kernel_test"),
    Mutant(
        "csrc/cpu/normal_kernel.h",
        "begin % block_numel == 0 ? (end - begin)",
        "true ? (end - begin)",
        "cpu_kernel_test",
    ),
    Mutant("csrc/cpu/normal_kernel.h", "i < block_numel && begin < end", "i < block_numel", "cpu_kernel_test"),
    Mutant("csrc/cpu/normal_kernel.h", "bits + 0x7FFFu +", "bits + 0x8000u +", "cpu_kernel_test"),
    Mutant(
        "csrc/cpu/normal_kernel.h",
        "begin <= element && element < end",
        "begin < element && element < end",
        "cpu_kernel_test",
    ),
    Mutant("csrc/cpu/normal_kernel.h", "(segment.end + 1) / 2 * 4", "segment.end / 2 * 4", "cpu_kernel_test"),
    Mutant(
        "csrc/cpu/normal_kernel.h",
        "segment.end > draw_numel - block_numel",
        "segment.end > draw_numel",
        "cpu_kernel_test",
    ),
    Mutant(
        "csrc/cpu/normal_kernel.h",
        "segments[i].begin == segments[i - 1].begin && segments[i].end == segments[i - 1].end",
        "segments[i].begin == segments[i - 1].begin",
        "cpu_kernel_test",
    ),
    Mutant(
        "csrc/cpu/normal_kernel.h",
        "uniform<double>(outputs + 2)));\n    const double angle = two_pi * uniform<double>(outputs)",
        "uniform<double>(outputs)));\n    const double angle = two_pi * uniform<double>(outputs + 2)",
        "cpu_kernel_test",
    ),
    Mutant(
        "csrc/cpu/kernels.h",
        "(rows[run] - run) * run_numel",
        "(rows[run] - run) * runs.features",
        "test_serving.py::test_rows_equal_the_reference",
    ),
    # The engine for CPU tensors: order of runs, limits, the check against ATen.
    Mutant(
        "csrc/cpu/engine.cpp",
        "runs_.start.data = starts_.data();",
        "",
        "test_serving.py::test_rows_equal_the_reference",
    ),
    Mutant(
        "csrc/cpu/engine.cpp",
        "position = start % runs.chunk_size;",
        "position = start;",
        "test_serving.py::test_huge_chunks_and_positions",
    ),
    Mutant(
        "csrc/cpu/engine.cpp",
        "for_each(runs.start.data, runs",
        "for_each(runs.start.data + 1, runs",
        "test_noise.py::test_deep_inside_a_huge_chunk",
    ),
    Mutant(
        "csrc/cpu/engine.cpp",
        "equals_aten(kernels_, dtype == at::kComplexHalf ? at::kHalf : dtype)",
        "(true)",
        "cpu_engine_test",
    ),
    Mutant(
        "csrc/cpu/engine.cpp",
        'forced_aten() || (capability != "AVX2" && capability != "AVX512")',
        "forced_aten()",
        "test_noise.py::test_capabilities",
    ),
    Mutant("csrc/cpu/engine.cpp", "verdicts_[static_cast<std::size_t>(dtype)]", "verdicts_[0]", "cpu_engine_test"),
    Mutant("csrc/aten/engine.cpp", "next_segment_start(runs, end));", "end);", "test_noise.py::test_capabilities"),
    Mutant("csrc/ops/parallel.h", "shared.error = std::current_exception();", "", "runs_test"),
    # The checks of arguments.
    Mutant("csrc/ops/checks.cpp", "value_or(0) >= 0", "value_or(0) > 0", "test_serving.py::test_empty_batches"),
    Mutant(
        "csrc/ops/checks.cpp",
        "first <= max - length",
        "first < max - length",
        "test_noise.py::test_the_last_position_and_the_largest_chunk",
    ),
    Mutant(
        "csrc/ops/checks.cpp",
        "c10::isComplexType(dtype) ? 2 : 1",
        "1",
        "test_noise.py::test_the_last_position_and_the_largest_chunk",
    ),
    Mutant("csrc/ops/checks.cpp", "reals) || overflow;", "reals);", "test_noise.py::test_errors"),
    Mutant("csrc/ops/checks.cpp", "*count == *wanted", "*count >= *wanted", "test_serving.py::test_errors_of_rows"),
    Mutant("csrc/ops/fill.cpp", "stride <= reach", "stride < reach", "test_serving.py::test_errors_of_out"),
    Mutant(
        "csrc/ops/fill.cpp",
        "TORCH_CHECK_VALUE(!overlap(self, values),",
        "TORCH_CHECK_VALUE(true,",
        "test_serving.py::test_out_that_shares_memory_with_the_seeds",
    ),
    # Filling: strides, views, copies, autograd.
    Mutant(
        "csrc/ops/fill.cpp",
        "target.is_contiguous() && !target.is_conj()",
        "!target.is_conj()",
        "test_ops.py::test_fill_writes_rows_and_any_strides",
    ),
    Mutant(
        "csrc/ops/fill.cpp",
        "!target.is_conj() && !target.is_neg()",
        "!target.is_conj()",
        "test_ops.py::test_fill_of_views_that_conjugate_or_negate",
    ),
    Mutant(
        "csrc/ops/fill.cpp",
        "/*copy=*/values.is_cpu()",
        "/*copy=*/false",
        "test_serving.py::test_seeds_and_positions_that_another_thread_writes",
    ),
    Mutant(
        "csrc/ops/fill.cpp",
        "request.seeds.expand({self.size(0)}).contiguous()",
        "request.seeds",
        "test_serving.py::test_one_value_for_all_rows",
    ),
    Mutant(
        "csrc/ops/fill.cpp",
        "at::GradMode::is_enabled() && self.requires_grad()",
        "self.requires_grad()",
        "test_ops.py::test_fill_and_autograd",
    ),
    Mutant("csrc/ops/fill.cpp", "torch::autograd::increment_version(self);", "", "test_ops.py::test_fill_and_autograd"),
    Mutant(
        "csrc/ops/sample.cpp", "dtype).squeeze(1)", "dtype).squeeze()", "test_serving.py::test_gather_of_every_token"
    ),
    Mutant("csrc/ops/sample.cpp", "i > 1; --i", "i > 2; --i", "test_noise.py::test_equals_the_reference"),
    # Padding.
    Mutant(
        "csrc/ops/padding.cpp",
        "(length - 1) / chunk_size + 1",
        "length / chunk_size + 1",
        "test_ops.py::test_chunk_index_of_the_operator",
    ),
    Mutant("csrc/ops/padding.cpp", "2 * (self.dim() - 1), 0", "2 * self.dim(), 0", "test_padding.py"),
    Mutant(
        "csrc/ops/padding.cpp",
        "begin <= end && tensor.size(1) == chunk_size",
        "tensor.size(1) == chunk_size",
        "api_test",
    ),
    Mutant("csrc/ops/padding.cpp", "std::min(chunk_size_, length - chunk.begin)", "chunk_size_", "api_test"),
    # Python.
    Mutant(
        "chunked_noise/_arguments.py",
        "INT64_MIN <= integer <= INT64_MAX",
        "INT64_MIN <= integer < INT64_MAX",
        "test_noise.py::test_the_last_position_and_the_largest_chunk",
    ),
    Mutant(
        "chunked_noise/_arguments.py",
        "(seed + 2**63) % 2**64 - 2**63",
        "seed % 2**63",
        "test_noise.py::test_seeds_of_every_kind",
    ),
    Mutant(
        "chunked_noise/_arguments.py",
        "isinstance(value, str | bytes | bytearray)",
        "isinstance(value, str)",
        "test_serving.py::test_errors_of_rows",
    ),
    Mutant(
        "chunked_noise/_arguments.py",
        'getattr(value, "ndim", 0) > 0',
        'getattr(value, "ndim", -1) >= 0',
        "test_serving.py::test_zero_dimensional_arrays_are_integers",
    ),
    Mutant(
        "chunked_noise/_arguments.py",
        "list(out.shape) != shape",
        "len(out.shape) != len(shape)",
        "test_serving.py::test_errors_of_out",
    ),
    Mutant(
        "chunked_noise/noise.py",
        "out.unsqueeze(1), seed=of",
        "out.unsqueeze(1).clone(), seed=of",
        "test_serving.py::test_out_of_gather",
    ),
    Mutant(
        "chunked_noise/noise.py",
        "isinstance(where, Tensor) and where.dim() != 1",
        "False",
        "test_serving.py::test_errors_of_gather",
    ),
    Mutant("chunked_noise/chunking.py", "min(begin + chunk_size, length)", "begin + chunk_size", "test_padding.py"),
    Mutant(
        "chunked_noise/chunking.py",
        "tensor.shape[1] != chunk_size:",
        "tensor.shape[1] < chunk_size:",
        "test_padding.py",
    ),
    Mutant("chunked_noise/chunking.py", "tensor.shape[1] != length:", "tensor.shape[1] > length:", "test_padding.py"),
    # The CUDA mapping, on the host.
    Mutant("csrc/core/divider.h", "+ divisor - 1) / divisor", ") / divisor", "cuda_mapping_test"),
    Mutant("csrc/core/philox.h", "static_cast<std::uint32_t>(seed >> 32)", "0", "cuda_mapping_test"),
    Mutant(
        "csrc/cuda/tiles.h", "lane_offset >= 0 && lane_offset", "lane_offset > 0 && lane_offset", "cuda_mapping_test"
    ),
]


def run(*command: str, timeout: float = 900, **environment: str) -> tuple[bool, str]:
    """Runs a command in the copy; returns whether it succeeded, and what it printed. A test may hang or crash."""
    try:
        result = subprocess.run(
            command,
            cwd=WORK / "tree",
            env={
                **os.environ,
                "PATH": PATH,
                "PYTHONPATH": str(WORK / "tree"),
                "CHUNKED_NOISE_CUDA": "0",
                "GTEST_FAIL_FAST": "1",
                "OMP_WAIT_POLICY": "passive",  # threads that spin starve on a machine that is shared
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return False, f"FAILED {timeout:.0f}-second-timeout"
    return result.returncode == 0, result.stdout


def prepare() -> bool:
    """Builds the package in the copy, and then its library by CMake, which compiles torch's headers once for all."""
    if not (WORK / "tree/chunked_noise/build.json").exists():
        run(sys.executable, "setup.py", "-q", "build_ext", "--inplace", CHUNKED_NOISE_CXXFLAGS="-O1")
    library = WORK / "tree/chunked_noise/lib/libchunked_noise.so"
    library.unlink(missing_ok=True)
    library.symlink_to(WORK / "cmake/libchunked_noise.so")
    headers = "<torch/library.h> <ATen/ATen.h> <torch/csrc/autograd/VariableTypeUtils.h>"
    (WORK / "headers.cmake").write_text(
        f"cmake_language(DEFER CALL target_precompile_headers chunked_noise_objects PRIVATE {headers})\n"
        "file(GLOB kernels csrc/cpu/kernels*.cpp)\n"  # which do not include them
        "set_source_files_properties(${kernels} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)\n"
    )
    return run(
        *("cmake", "-G", "Ninja", "-S", ".", "-B", str(WORK / "cmake"), "-DCHUNKED_NOISE_TESTS=ON"),
        *("-DCMAKE_BUILD_TYPE=Mutation", "-DCMAKE_CXX_FLAGS=-O1", f"-DCHUNKED_NOISE_CUDA_INCLUDES={CUDA_INCLUDES}"),
        f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}",
        f"-DCMAKE_PROJECT_chunked_noise_INCLUDE={WORK / 'headers.cmake'}",
    )[0]


def build(*targets: str) -> str:
    """Compiles what has changed; returns what went wrong."""
    built, output = run("cmake", "--build", str(WORK / "cmake"), "--target", *targets)
    return "" if built else first(r"error: (static assertion.*)", output, NO_COMPILE)


def python_tests(*selected: str) -> str:
    """Returns the first Python test that fails, or nothing."""
    tests = selected or PYTHON_TESTS
    passed, output = run(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests)
    if missing := re.search(r"^ERROR: (?:file or directory )?not found: (\S+)", output, re.MULTILINE):
        sys.exit(f"there is no test {missing[1]}")  # which is no failed one, and would see every mutant
    return "" if passed else first(r"^(?:FAILED|ERROR) (\S+)", output)


def cpp_tests(only: str = "all") -> str:
    """Returns the first C++ test that fails, or nothing."""
    if failed := build(only):
        return failed
    selected = [] if only == "all" else ["-R", only]
    passed, output = run(
        "ctest", "--test-dir", str(WORK / "cmake"), "--output-on-failure", "--stop-on-failure", *selected
    )
    return "" if passed else first(r"^\[  FAILED  \] ([\w/.]+)", output)


def first(pattern: str, output: str, otherwise: str = "") -> str:
    """Returns what the pattern finds in the output of a failed command: the name of a test, mostly."""
    found = re.search(pattern, output, re.MULTILINE)
    if found or otherwise:
        return found[1] if found else otherwise
    found = re.search(r", line \d+ in (test_\w+)", output)  # of the stack that Python shows after a crash
    return "crash in " + (found[1] if found else " ".join(output.split()[-12:]))


def killer(mutant: Mutant) -> str:
    """Returns what sees the mutant, or nothing if it survives."""
    if not mutant.near.startswith("test_"):
        return cpp_tests(mutant.near) or build("chunked_noise") or python_tests() or cpp_tests()
    return build("chunked_noise") or python_tests(f"tests/{mutant.near}") or python_tests() or cpp_tests()


def main() -> int:
    """Runs the mutants and returns the exit status."""
    words = sys.argv[1:]
    mutants = [mutant for mutant in MUTANTS if not words or any(word in part for word in words for part in mutant)]
    left_out = [mutant for mutant in mutants if not CUDA_INCLUDES and mutant.near == "cuda_mapping_test"]
    mutants = [mutant for mutant in mutants if mutant not in left_out]
    (WORK / "tree").mkdir(parents=True, exist_ok=True)
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for file in files.stdout.split():
        target = WORK / "tree" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != (ROOT / file).read_bytes():  # the others are compiled already
            shutil.copyfile(ROOT / file, target)
    print("building, and testing without a mutant", flush=True)
    failed = "" if prepare() else NO_COMPILE
    failed = failed or build("chunked_noise") or python_tests() or cpp_tests()
    if failed:
        print(failed)
        return 1
    failures = 0
    for number, mutant in enumerate(mutants, 1):
        begin = time.monotonic()
        path = WORK / "tree" / mutant.file
        original = path.read_text()
        assert original.count(mutant.old) == 1, mutant
        path.write_text(original.replace(mutant.old, mutant.new))
        try:
            seen_by = killer(mutant)
        finally:
            path.write_text(original)
        failures += seen_by in ("", NO_COMPILE)
        print(
            f"{number:3} of {len(mutants)}, {time.monotonic() - begin:4.0f} s  {mutant.file}: "
            f"{mutant.old!r} -> {mutant.new!r}\n    {seen_by or 'SURVIVED'}",
            flush=True,
        )
    print(f"{len(mutants)} mutants, {failures} of them not seen")
    if left_out:
        print(f"{len(left_out)} mutants of the CUDA mapping are left out: CUDA_INCLUDES is not set")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

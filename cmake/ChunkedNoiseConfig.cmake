# find_package(ChunkedNoise) defines the target chunked_noise::chunked_noise. One file for the Python package and for
# `cmake --install`: both have lib/, include/ and share/cmake/ChunkedNoise/ under one prefix.
include(CMakeFindDependencyMacro)
find_dependency(Torch)

get_filename_component(ChunkedNoise_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET chunked_noise::chunked_noise)
  add_library(chunked_noise::chunked_noise SHARED IMPORTED)
  set_target_properties(chunked_noise::chunked_noise PROPERTIES
    IMPORTED_LOCATION "${ChunkedNoise_PREFIX}/lib/libchunked_noise.so"
    INTERFACE_INCLUDE_DIRECTORIES "${ChunkedNoise_PREFIX}/include"
    INTERFACE_COMPILE_FEATURES cxx_std_20  # as the headers of torch want it
    INTERFACE_LINK_LIBRARIES torch
    # A program that only runs models names no function of the library: without this, a linker with --as-needed drops
    # it, and the operators with it.
    INTERFACE_LINK_OPTIONS "LINKER:--no-as-needed")
endif()

# The examples against the installed tree, by the CMake package.
cmake_minimum_required(VERSION 3.25)
project(example LANGUAGES CXX)
find_package(furrow REQUIRED)
add_executable(example ${EXAMPLE_DIR}/example.cc)
target_link_libraries(example PRIVATE furrow::furrow)
if(TARGET furrow::rocksdb)
  find_package(Furrow REQUIRED COMPONENTS rocksdb)  # by either name
  add_executable(database ${EXAMPLE_DIR}/database.cc)
  target_link_libraries(database PRIVATE furrow::rocksdb)
endif()

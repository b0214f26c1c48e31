// Loading the shared object is all that a program needs to know furrow://.
#include <rocksdb/utilities/object_registry.h>

#include "engine/rocksdb/file_system.h"

namespace {
[[maybe_unused]] const int registered = register_furrow(*rocksdb::ObjectLibrary::Default(), "");
}

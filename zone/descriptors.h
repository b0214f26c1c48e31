// The descriptors of the standard files. Where a process was started without one of these files, the
// next file that is opened takes its descriptor, and were that a device's, what the program prints
// would be written over it.
#pragma once

namespace furrow {

// Gives those that are free to what can be neither read nor written: who uses one is told that it
// is not open (EBADF), as before. They stay taken, but in programs that this one starts. Any thread.
void fill_standard_files();

}  // namespace furrow

// File descriptors: what to say where there are no more, what one is open for, and those of the
// standard files.
#pragma once

namespace furrow {

// EMFILE.
inline constexpr const char* kNoDescriptor =
    "no more files may be open: raise the limit of open files (ulimit -n, in a systemd unit "
    "LimitNOFILE=)";

// Does the file have O_DIRECT? No, where nobody can tell.
bool is_direct(int fd);

// Where a process was started without one of the standard files, the next file that is opened takes
// its descriptor, and were that a device's, what the program prints would be written over it. This
// gives those that are free to what can be neither read nor written: who uses one is told that it
// is not open (EBADF), as before. They stay taken, but in programs that this one starts. Any
// thread.
void fill_standard_files();

}  // namespace furrow

//! Integration tests of the real binary.

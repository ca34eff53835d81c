//! The trials. See the library of this package for how they are run.

//! Empty: a package needs a library or a binary beside its examples. The recipes are the examples in the folder above.

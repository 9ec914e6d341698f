//! Locks with the plain `redis` client. Each file beside this one is a program; README.md says which is which.

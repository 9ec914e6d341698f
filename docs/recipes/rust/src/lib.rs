//! Locks with the plain `redis` client. Each file of the folder above is a program; README.md says which is which.

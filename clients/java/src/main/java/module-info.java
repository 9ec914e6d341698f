/** Locks of the dlock module of Redis and Valkey. */
module dlock {
    exports dlock;
}

/**
 * Locks of the dlock module of Redis and Valkey: {@link java.util.concurrent.locks.Lock} over several machines.
 *
 * <p>Start with {@link dlock.DLockClient}.
 */
package dlock;

/** Locks of the dlock module. What each name promises is said in index.d.ts. */
export { DLock } from './dlock.js';
export { LockLost, NotGranted } from './errors.js';

/** The exports of `semaphore.js` for `import`: one copy of each class, whichever way the package is loaded. */
import all from './semaphore.js';

export const { LostLockError, TimeoutError, defaultTimeoutOptions } = all;
export const { Mutex, Semaphore, MultiSemaphore, RedlockMutex, RedlockSemaphore, RedlockMultiSemaphore } = all;

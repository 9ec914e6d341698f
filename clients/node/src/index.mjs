/**
 * The exports of `index.js` for `import`. `import` and `require` give the same classes, so `instanceof` works with
 * both.
 */
import dlock from './index.js';

export const { DLock, LockLost, NoAnswer, NotGranted, Session, TooFewReplicas } = dlock;

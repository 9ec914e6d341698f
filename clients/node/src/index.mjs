/** The exports of `index.js` for `import`, with the same classes as `require` gives: `instanceof` works with both. */
import dlock from './index.js';

export const { DLock, LockLost, NoAnswer, NotGranted, Session, TooFewReplicas } = dlock;

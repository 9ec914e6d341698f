/** The exports of `index.js` for `import`: one copy of each class, whichever way the package is loaded. */
import dlock from './index.js';

export const { DLock, LockLost, NoAnswer, NotGranted, Session, TooFewReplicas } = dlock;

/** The exports of `redlock.js` for `import`: one copy of each class, whichever way the package is loaded. */
export { ExecutionError, Lock, Redlock, Redlock as default, ResourceLockedError } from './redlock.js';

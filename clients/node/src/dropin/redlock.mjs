/** The same for `import`: one copy of each class, whichever way the package is loaded. */
import all from './redlock.js';

export const { ExecutionError, Lock, Redlock, ResourceLockedError } = all;
export default Redlock;

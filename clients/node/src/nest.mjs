/** The exports of `nest.js` for `import`: one copy, whichever way the package is loaded. */
import all from './nest.js';

export const { DlockModule, Locked, Once, currentLock } = all;

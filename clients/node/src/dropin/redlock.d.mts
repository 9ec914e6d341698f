export { ExecutionError, Lock, Redlock, Redlock as default, ResourceLockedError } from './redlock.js';
export type { ExecutionResult, ExecutionStats, RedlockAbortSignal, Settings } from './redlock.js';

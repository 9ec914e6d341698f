/** The interface of redlock 5 over the locks of one server with the dlock module. */
import type { EventEmitter } from 'node:events';
import type { AnyClient } from '../index.js';

export interface ExecutionStats {
  readonly membershipSize: number;
  readonly quorumSize: number;
  readonly votesFor: Set<any>;
  readonly votesAgainst: Map<any, Error>;
}

export interface ExecutionResult {
  attempts: ReadonlyArray<Promise<ExecutionStats>>;
}

export interface Settings {
  /** The share of the duration that {@link Lock.expiration} leaves out. Default 0.01. */
  readonly driftFactor: number;
  /**
   * An acquisition waits in the server's queue for `retryCount * (retryDelay + retryJitter)` ms. With a count of
   * 0 it does not wait, with -1 it waits without a limit. The defaults are 10, 200 and 100.
   */
  readonly retryCount: number;
  readonly retryDelay: number;
  readonly retryJitter: number;
  /**
   * The duration of `using` must be at least 100 ms longer than this number of ms. The number has no other effect:
   * the lease is renewed whenever a third of it has passed. Default 500.
   */
  readonly automaticExtensionThreshold: number;
}

/** A resource has another owner, or the lock was lost. */
export declare class ResourceLockedError extends Error {
  constructor(message: string);
}

/** The lock was not granted in time, is lost, or no server has answered: `cause` says which. */
export declare class ExecutionError extends Error {
  constructor(message: string, attempts: ReadonlyArray<Promise<ExecutionStats>>, cause?: unknown);
  readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
}

export declare class Lock {
  private constructor();
  readonly redlock: Redlock;
  readonly resources: string[];
  /** The owner. */
  readonly value: string;
  /** The fencing token, which redlock does not have: pass it to whatever the lock protects. */
  readonly token: number;
  readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
  /** When the lock may end, by `Date.now()`: until then it is surely held. 0 once it is lost, released or extended. */
  readonly expiration: number;
  release(): Promise<ExecutionResult>;
  /** Returns the same lock with another duration, as a new object. The `expiration` of this one is then 0. */
  extend(duration: number): Promise<Lock>;
}

export type RedlockAbortSignal = AbortSignal & { error?: Error };

export declare class Redlock extends EventEmitter {
  /** @param clients exactly one */
  constructor(clients: Iterable<AnyClient>, settings?: Partial<Settings>);
  readonly clients: Set<any>;
  readonly settings: Settings;
  quit(): Promise<void>;
  acquire(resources: string[], duration: number, settings?: Partial<Settings>): Promise<Lock>;
  release(lock: Lock, settings?: Partial<Settings>): Promise<ExecutionResult>;
  extend(existing: Lock, duration: number, settings?: Partial<Settings>): Promise<Lock>;
  using<T>(
    resources: string[],
    duration: number,
    settings: Partial<Settings>,
    routine: (signal: RedlockAbortSignal) => Promise<T>,
  ): Promise<T>;
  using<T>(resources: string[], duration: number, routine: (signal: RedlockAbortSignal) => Promise<T>): Promise<T>;
}

export default Redlock;

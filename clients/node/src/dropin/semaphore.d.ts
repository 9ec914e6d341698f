/** The classes of redis-semaphore over the locks of one server with the dlock module. */
import type { AnyClient } from '../index.js';

export interface LockLostCallback {
  (this: Lock, error: LostLockError): void;
}

export interface TimeoutOptions {
  /** The lease, in ms. Default 10000. */
  lockTimeout?: number;
  /** How long `acquire` and `tryAcquire` wait in the server's queue, in ms. Default 10000. */
  acquireTimeout?: number;
  /**
   * With `retryInterval`, limits the wait of `acquire` and `tryAcquire` to `(acquireAttemptsLimit - 1) * retryInterval`
   * ms. 1: they do not wait. Default `Infinity`.
   */
  acquireAttemptsLimit?: number;
  retryInterval?: number;
  /** 0: the lock is not renewed. Otherwise it is, after a third of `lockTimeout` at the latest. */
  refreshInterval?: number;
}

export interface LockOptions extends TimeoutOptions {
  /** The begin of the owner, 47 bytes at most. Default: a UUID. */
  identifier?: string;
  /** Go on with the lock that another program has acquired under this `identifier`. */
  acquiredExternally?: true;
  /** `identifier` with `acquiredExternally`. */
  externallyAcquiredIdentifier?: string;
  identifierSuffix?: string;
  /** Called when a lock that is renewed is lost. By default, the error is an unhandled rejection. */
  onLockLost?: LockLostCallback;
}

export declare abstract class Lock {
  readonly identifier: string;
  /** Whether the lock is certainly held now. */
  readonly isAcquired: boolean;
  /** The fencing token, which redis-semaphore does not have. undefined: it is not acquired. */
  readonly token: number | undefined;
  acquire(abortSignal?: AbortSignal): Promise<void>;
  /** Waits as `acquire` does. false: not granted in time. */
  tryAcquire(abortSignal?: AbortSignal): Promise<boolean>;
  release(): Promise<void>;
  stopRefresh(): void;
}

export declare class Mutex extends Lock {
  constructor(client: AnyClient, key: string, options?: LockOptions);
}

export declare class Semaphore extends Lock {
  constructor(client: AnyClient, key: string, limit: number, options?: LockOptions);
}

export declare class MultiSemaphore extends Lock {
  constructor(client: AnyClient, key: string, limit: number, permits: number, options?: LockOptions);
}

/** @param clients exactly one */
export declare class RedlockMutex extends Lock {
  constructor(clients: AnyClient[], key: string, options?: LockOptions);
}

/** @param clients exactly one */
export declare class RedlockSemaphore extends Lock {
  constructor(clients: AnyClient[], key: string, limit: number, options?: LockOptions);
}

/** @param clients exactly one */
export declare class RedlockMultiSemaphore extends Lock {
  constructor(clients: AnyClient[], key: string, limit: number, permits: number, options?: LockOptions);
}

export declare class LostLockError extends Error {}
export declare class TimeoutError extends Error {}

export declare const defaultTimeoutOptions: Required<Omit<TimeoutOptions, 'refreshInterval'>>;

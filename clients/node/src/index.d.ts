/** A client of ioredis for one server or for Sentinel, as far as this package uses it. */
export interface IoredisClient {
  readonly options: { keyPrefix?: string | undefined };
  call(command: string, ...args: string[]): Promise<unknown>;
  duplicate(override?: object): IoredisClient;
  connect(): Promise<unknown>;
  disconnect(): void;
  on(event: string, listener: (...args: any[]) => void): unknown;
  once(event: string, listener: (...args: any[]) => void): unknown;
}

/** A client of node-redis for one server, as far as this package uses it. */
export interface NodeRedisClient {
  readonly isOpen: boolean;
  readonly isReady: boolean;
  readonly options?: any;
  sendCommand(args: string[]): Promise<unknown>;
  duplicate(overrides?: any): NodeRedisClient;
  connect(): Promise<unknown>;
  destroy(): void;
  on(event: string, listener: (...args: any[]) => void): unknown;
  once(event: string, listener: (...args: any[]) => void): unknown;
}

export interface LockOptions {
  /** How long the lock is held without being extended, in milliseconds. Default 30000. */
  lease?: number;
  /**
   * How long to wait for it, in milliseconds: 0 not at all, `Infinity` (the default) until it is granted or `signal`
   * is aborted. Waiting takes one connection and one command, whatever its length.
   */
  wait?: number;
  /** `exclusive` (the default) and `write` exclude everybody else, `read` excludes writers. */
  mode?: 'exclusive' | 'read' | 'write';
  /**
   * Bind the lock to a connection of its own, which is kept until the release: the server renews the lease while that
   * lives, and frees the lock when it ends. `lease` is 300 or more then. Default false.
   */
  session?: boolean;
  /** Ends the waiting: `acquire` rejects with its reason, and the place in line is given up. */
  signal?: AbortSignal;
}

/** A lock that is held. */
export interface Lock extends AsyncDisposable {
  readonly resource: string;
  /** A UUID of this acquisition. */
  readonly owner: string;
  /** The fencing token: greater than that of every earlier grant. Give it to whatever the lock protects. */
  readonly token: number;
  /**
   * Aborted, with a {@link LockLost}, when the lock is lost or must be taken for lost: no later than one lease after
   * the last renewal that succeeded was sent, by a clock that only goes forward.
   */
  readonly signal: AbortSignal;
  /** The milliseconds for which the lock is certainly held, if nobody deletes it; 0 once it is lost or released. */
  readonly remaining: number;
  /**
   * Sets the lease anew, from now on. One command.
   *
   * @param lease milliseconds; as before unless given
   * @throws {LockLost} it was lost or released before
   */
  extend(lease?: number): Promise<void>;
  /**
   * Gives it up. One command, sent again if the connection breaks meanwhile.
   *
   * @returns false: the server no longer had it. After a lost reply that may be because the first try released it.
   */
  release(): Promise<boolean>;
}

/** Takes locks through a client that is connected. It can be shared with whatever else the program does. */
export declare class DLock {
  /** @param defaults for every lock that is taken through it */
  constructor(client: IoredisClient | NodeRedisClient, defaults?: LockOptions);
  /**
   * Takes a lock. One command if it is free, otherwise a place in line, first come first served.
   *
   * @throws {NotGranted} it was not granted in the time to wait
   */
  acquire(resource: string, options?: LockOptions): Promise<Lock>;
  /** Takes a lock for reading: `acquire` with `mode: 'read'`. */
  read(resource: string, options?: LockOptions): Promise<Lock>;
  /** Takes a lock for writing: `acquire` with `mode: 'write'`. */
  write(resource: string, options?: LockOptions): Promise<Lock>;
  /**
   * Takes a lock, runs the routine, and releases the lock however that ends. Meanwhile the lease is moved on whenever
   * a third of it has passed. The routine's signal is the lock's: what cannot be undone should look at it first.
   *
   * @throws {LockLost} the routine ended, but the lock had been lost before
   */
  using<T>(
    resource: string,
    options: LockOptions,
    routine: (signal: AbortSignal, lock: Lock) => Promise<T>,
  ): Promise<T>;
}

/** The lock was not granted within the time to wait. */
export declare class NotGranted extends Error {
  constructor(resource: string);
  readonly resource: string;
}

/** The lock is no longer held, or must be taken for lost. `cause` is the last failure of a command, if any. */
export declare class LockLost extends Error {
  constructor(resource: string, why: string, cause?: unknown);
  readonly resource: string;
}

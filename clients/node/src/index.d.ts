/** A client of ioredis for one server or for Sentinel, as far as this package uses it. */
export interface IoredisClient {
  readonly options: { keyPrefix?: string | undefined };
  readonly status: string;
  readonly stream: unknown;
  call(command: string, ...args: string[]): Promise<unknown>;
  duplicate(override?: object): IoredisClient;
  connect(): Promise<unknown>;
  disconnect(): void;
  on(event: string, listener: (...args: any[]) => void): unknown;
  once(event: string, listener: (...args: any[]) => void): unknown;
}

/** A `Cluster` of ioredis, as far as this package uses it. */
export interface IoredisCluster {
  readonly isCluster: boolean;
  readonly status: string;
  readonly options: object;
  readonly slots: string[][];
  nodes(role: 'master'): IoredisClient[];
  call(command: string, ...args: string[]): Promise<unknown>;
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

/** The client that `createCluster` of node-redis makes, as far as this package uses it. */
export interface NodeRedisCluster {
  readonly isOpen: boolean;
  readonly slots: Array<{ master: any }>;
  readonly masters: any[];
  sendCommand(firstKey: string, isReadonly: boolean, args: string[]): Promise<unknown>;
  nodeClient(node: any): any;
}

/** The client that `createSentinel` of node-redis makes, as far as this package uses it. */
export interface NodeRedisSentinel {
  readonly isOpen: boolean;
  getMasterNode(): any;
  sendCommand(isReadonly: boolean, args: string[]): Promise<unknown>;
  _execute<T>(isReadonly: boolean, task: (client: any) => Promise<T>): Promise<T>;
}

/** A standalone client of Valkey GLIDE, as far as this package uses it. Waits have clients of their own. */
export interface GlideStandaloneClient {
  customCommand(args: string[], options?: any): Promise<unknown>;
  select(index: number): Promise<unknown>;
  close(): void;
}

export type AnyClient =
  | IoredisClient
  | IoredisCluster
  | NodeRedisClient
  | NodeRedisCluster
  | NodeRedisSentinel
  | GlideStandaloneClient;

export interface LockOptions {
  /** How long the lock is held unless it is extended, in milliseconds. Default 30000. */
  lease?: number;
  /**
   * How long to wait for the lock, in milliseconds: 0 not at all, `Infinity` (the default) until it is granted or
   * `signal` is aborted. It is a bound: an acquisition settles at most 250 ms later, even without a server. Until then
   * it looks for one. With 0, it waits for the server's answer only, see `answer`. Waiting takes one connection and one
   * command, whatever its length.
   */
  wait?: number;
  /**
   * How long the server may take to answer, in milliseconds. Default 1000. An acquisition with `wait: 0`, an extension
   * and a release reject with {@link NoAnswer} after that time.
   */
  answer?: number;
  /**
   * How long an acquisition without a limit (`wait: Infinity`) looks for a server, in milliseconds since a server has
   * answered last. Default 30000. Then it rejects with {@link NoAnswer}. `Infinity`: forever.
   */
  outage?: number;
  /** `exclusive` (the default) and `write` exclude everybody else, `read` excludes writers. */
  mode?: 'exclusive' | 'read' | 'write';
  /**
   * Bind the lock to a connection of its own, which is kept until the release. The server renews the lease while that
   * connection lives, and frees the lock when it ends. `lease` must be 300 or more. Default false. Or an open
   * {@link Session} of the same client, which keeps the lock: `lease` is three times its timeout then, or longer if you
   * say so.
   */
  session?: boolean | Session;
  /**
   * How many replicas must acknowledge the grant and each renewal. Default 0. If fewer do within `replicasTimeout`, the
   * lock is released, and the acquisition rejects with {@link TooFewReplicas}. Takes a connection of its own.
   */
  replicas?: number;
  /** How long the replicas may take, in milliseconds, but no longer than `wait` has left. Default 1000. */
  replicasTimeout?: number;
  /**
   * How long the lock is held at most, in milliseconds from its grant, however often it is renewed. Then it is lost, and
   * {@link Lock.remaining} counts to that end: so a program that hangs does not keep its lock forever. A longer lease is
   * cut to it. Default `Infinity`. Needs a module that knows `MAXHOLD`.
   */
  maxHold?: number;
  /**
   * How long the lock stays at least, in milliseconds from its grant. Default 0. A release before that sets the lease to
   * what is left, instead of freeing the lock. If the program dies, it stays so long, too. Not with `session`.
   */
  atLeast?: number;
  /**
   * Renew the lease whenever a third of it has passed, from the grant until the release or the loss. Default false.
   * {@link DLock.using} and sessions do so anyway.
   */
  renew?: boolean;
  /**
   * A label that the owner begins with, 47 bytes at most: `DLOCK.INFO` and `dlock info` show it to everybody who may look
   * at the lock. Default: host, process and a number. A random end follows, since each acquisition is an owner of its own.
   */
  owner?: string;
  /** Ends the waiting: the acquisition rejects with its reason, and the place in the queue is given up. */
  signal?: AbortSignal;
}

export interface SessionOptions {
  /**
   * The server frees all locks of the session this many milliseconds after the last heartbeat: 300 to 3600000, by
   * default 10000. A heartbeat is sent whenever a third of it has passed.
   */
  timeout?: number;
  /** Heartbeats are sent only while the program calls {@link Session.beat}. Default false. */
  manual?: boolean;
}

/**
 * Keeps all locks that are acquired with it (`session: …`) by one heartbeat, over the client that the program has. Open
 * it once. When the heartbeats end, for example because the program hangs, the server frees all of its locks together.
 *
 * In a cluster, each node with locks of the session gets heartbeats, over a connection of its own. If a node fails, the
 * session is lost only if no other node has locks of it. The locks on that node are lost, unless they are bound on the
 * next primary in time.
 */
export declare class Session implements AsyncDisposable {
  constructor(client: AnyClient, options?: SessionOptions);
  /** The name by which the server knows it. The nodes of a cluster know it by others. */
  readonly id: string;
  readonly timeout: number;
  /** Whether it is open, as far as is known here. */
  readonly isOpen: boolean;
  /**
   * Aborted, with a {@link LockLost}, when the session is lost or must be assumed lost: no heartbeat was confirmed
   * within its timeout, counted from when the last confirmed one was sent. All of its locks are lost with it, and it
   * cannot be opened again.
   */
  readonly lost: AbortSignal;
  /**
   * Opens it at the server, and resolves with the session itself.
   *
   * @throws {NoAnswer} no server answered within a second
   */
  open(): Promise<this>;
  /**
   * Ends it, and frees all of its locks with one command. A lock that was still held is lost.
   *
   * @throws {NoAnswer} no server answered within a second. The server then frees the locks when `timeout` has passed
   *   since the last heartbeat, or after `dlock.session-grace` more
   */
  close(): Promise<void>;
  /**
   * Says, with `manual`, that the program is alive. Sends nothing itself, so call it often: a heartbeat that is due, or has
   * failed, follows the next call.
   */
  beat(): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A lock that is held. */
export interface Lock extends AsyncDisposable {
  /** The name, or the names joined by spaces if several were locked together. */
  readonly resource: string;
  /** The owner, another one for each acquisition: `HOST:PID:NUMBER:RANDOM`, or {@link LockOptions.owner} and a random end. */
  readonly owner: string;
  /** The fencing token: greater than that of every earlier grant. Pass it to whatever the lock protects. */
  readonly token: number;
  /**
   * The number of a permit that was acquired with `slot`: 0 to the limit - 1, and no other permit that is held has it.
   * Otherwise undefined.
   */
  readonly slot: number | undefined;
  /**
   * Aborted, with a {@link LockLost}, when the lock is lost or must be assumed lost: at the latest one lease after the
   * last confirmed renewal was sent, by a clock that only goes forward.
   */
  readonly signal: AbortSignal;
  /**
   * The milliseconds for which the lock is certainly held, if nobody deletes it; 0 once it is lost or released, and, with
   * `session: true`, while its connection has ended and another one is not bound yet.
   */
  readonly remaining: number;
  /**
   * Sets the lease again, from now on. One command.
   *
   * @param lease milliseconds; as before unless given
   * @throws {LockLost} it was lost or released before
   * @throws {NoAnswer} the server did not answer in time. It may set the lease later, so `remaining` counts with the
   *   shortest lease that the server may have
   * @throws {TooFewReplicas} it was renewed, but too few replicas acknowledged that
   */
  extend(lease?: number): Promise<void>;
  /**
   * Stops keeping the lock, and does not release it: another client, perhaps of another program, goes on with it by
   * {@link DLock.resume}, with its name, owner and token, within the lease. Sends nothing. A later `release`, or the end
   * of `using`, does nothing: the lock is the other client's.
   *
   * @throws {LockLost} it was lost before
   */
  handOver(): void;
  /**
   * Releases the lock. One command, sent again if the connection breaks meanwhile. Before `atLeast` has passed, it sets
   * the lease to what is left of that: up to a second later if a renewal has no answer, which the server may still
   * execute.
   *
   * @returns false: the server no longer had it, or another program has overwritten the key. If the reply to the first
   *   try was lost, that try may have released it.
   * @throws {NoAnswer} the server did not answer in time
   */
  release(): Promise<boolean>;
}

type Routine<T> = (signal: AbortSignal, lock: Lock) => Promise<T> | T;

/** Acquires locks through a connected client, which the rest of the program may use as well. */
export declare class DLock {
  /** @param defaults for every lock that is acquired through it */
  constructor(client: AnyClient, defaults?: LockOptions);
  /**
   * Acquires a lock. One command if it is free, otherwise a place in the queue, first come, first served.
   *
   * @throws {NotGranted} it was not granted in the time to wait
   * @throws {NoAnswer} the server could not be reached, or did not answer, in that time
   */
  acquire(resource: string, options?: LockOptions): Promise<Lock>;
  /** Acquires a lock without waiting, unless `wait` is given. null: another owner holds it. */
  tryAcquire(resource: string, options?: LockOptions): Promise<Lock | null>;
  /** Acquires a lock for reading: `acquire` with `mode: 'read'`. */
  read(resource: string, options?: LockOptions): Promise<Lock>;
  /** Acquires a lock for writing: `acquire` with `mode: 'write'`. */
  write(resource: string, options?: LockOptions): Promise<Lock>;
  /**
   * Acquires a lock, runs the routine, and releases the lock however that ends. Meanwhile the lease is renewed whenever
   * a third of it has passed. The routine's signal is the lock's: check it before anything that cannot be undone.
   *
   * @throws {LockLost} the routine ended, but the lock had been lost before
   */
  using<T>(resource: string, routine: Routine<T>): Promise<T>;
  using<T>(resource: string, options: LockOptions, routine: Routine<T>): Promise<T>;
  /**
   * Acquires all of these locks exclusively, or none: 1 to 64 different names. Programs need not agree on an order, and
   * such requests never deadlock among themselves. In a cluster all names must be in one slot. Needs a module with
   * `DLOCK.MACQUIRE`.
   *
   * @returns one lock for all of them, with one token
   */
  acquireAll(resources: string[], options?: Omit<LockOptions, 'mode'>): Promise<Lock>;
  /** `using` for all of these locks. */
  usingAll<T>(resources: string[], routine: Routine<T>): Promise<T>;
  usingAll<T>(resources: string[], options: Omit<LockOptions, 'mode'>, routine: Routine<T>): Promise<T>;
  /**
   * A semaphore. The limit belongs to each request: nothing is created on the server. Needs a module with
   * `DLOCK.SACQUIRE`.
   */
  semaphore(resource: string, limit: number): Semaphore;
  /**
   * Runs the routine at most once in each period, on all machines together: start it on all of them at about the same
   * time. The lock is the memory: it stays for nine tenths of the period, counted from the start of the run by the
   * server's clock. The next start may come early by the last tenth, so clocks may differ. A routine that fails, and a
   * program that dies, have run, except with `retryFailed`. Does not wait, unless `wait` is given.
   *
   * @param period milliseconds, 1000 or more
   * @returns whether it ran here. false: it has run in this period, or runs now
   * @throws {NoAnswer} the server could not be reached: nothing ran
   * @throws {LockLost} the lock was lost while the routine ran, so another run may have begun
   */
  once(resource: string, period: number, routine: Routine<unknown>): Promise<boolean>;
  once(resource: string, period: number, options: OnceOptions, routine: Routine<unknown>): Promise<boolean>;
  /**
   * Goes on with a lock of a lease that another client, perhaps of another program, has left by {@link Lock.handOver}, or
   * by its end. It is the same hold, with the same token; `lease` and `renew` are those of this call.
   *
   * @throws {LockLost} the server has no such hold
   * @throws {NoAnswer} the server did not answer in time
   */
  resume(resource: string, owner: string, token: number, options?: Omit<LockOptions, 'session'>): Promise<Lock>;
  /** Asks the server for the holder of a lock. null: it is free. */
  holder(resource: string): Promise<Holder | null>;
  /**
   * Yields the holders of a lock: the present one at once, then each change. null: it is free. The server reports
   * changes (`CLIENT TRACKING`), so nothing polls; changes that follow each other quickly may be reported as one. It
   * outlives outages, takes two connections, and ends with the loop or the signal.
   */
  watch(resource: string, options?: { signal?: AbortSignal }): AsyncGenerator<Holder | null, void, void>;
  /**
   * Takes part in an election: of all programs that do so, one at a time is the leader. Resolves after `signal` is
   * aborted, which ends the term and releases the lock. Rejects if `onStarted` or `onStopped` does.
   */
  elect(resource: string, options: ElectionOptions): Promise<void>;
}

export interface OnceOptions extends Omit<LockOptions, 'mode' | 'session' | 'atLeast'> {
  /**
   * A routine that fails has not run: the lock is released, and another run may follow in the same period. If the
   * program dies, one may follow after `lease`. Default false.
   */
  retryFailed?: boolean;
}

/** The holder of a lock. Of several readers, the one that has held it for the longest time. */
export interface Holder {
  /** The fencing token. */
  readonly token: number;
  readonly owner: string;
  /** When the lock was granted, by the server's clock. The token contains it. */
  readonly since: Date;
}

export interface ElectionOptions extends Omit<LockOptions, 'mode' | 'wait'> {
  /**
   * Called when this program becomes the leader. It may do the leader's work, until the signal is aborted: then the
   * term has ended, or must be assumed to have ended. If it returns earlier, the program stays the leader. Pass
   * `lock.token` to whatever the leader writes to.
   */
  onStarted: (signal: AbortSignal, lock: Lock) => unknown;
  /** Called after the end of the term, and before the lock is released. */
  onStopped?: (lock: Lock) => unknown;
}

/** A semaphore: at most `limit` permits are taken at a time, by all programs together. */
export interface Semaphore {
  readonly resource: string;
  readonly limit: number;
  /**
   * Takes permits, strictly first come, first served: a request for many holds back smaller ones behind it. They have
   * one lease and one token, and are released together.
   *
   * @throws {NotGranted} they were not free in the time to wait
   */
  acquire(options?: SemaphoreOptions): Promise<Lock>;
  /** Takes permits, runs the routine, and releases them however that ends: see {@link DLock.using}. */
  using<T>(routine: Routine<T>): Promise<T>;
  using<T>(options: SemaphoreOptions, routine: Routine<T>): Promise<T>;
}

export interface SemaphoreOptions extends Omit<LockOptions, 'mode'> {
  /** How many permits to take: 1 to the limit. Default 1. */
  permits?: number;
  /**
   * Take one permit with a number: the lowest free one from 0 to the limit - 1, which is {@link Lock.slot}. For pools
   * of devices, and ids of workers. Default false. Needs a module that knows `SLOT`.
   */
  slot?: boolean;
}

/**
 * The lock was not granted within the time to wait, and a server has said so at least once. `cause` is its `WRONGTYPE` if a
 * program without dlock had the key.
 */
export declare class NotGranted extends Error {
  constructor(resource: string, cause?: unknown);
  readonly resource: string;
}

/** The server did not answer in time. `cause` is the last failure. A grant that comes later is released. */
export declare class NoAnswer extends Error {
  constructor(resource: string, cause?: unknown);
  readonly resource: string;
}

/** Too few replicas acknowledged the grant or the renewal in time. */
export declare class TooFewReplicas extends Error {
  constructor(resource: string, acknowledged: number, wanted: number);
  readonly resource: string;
  readonly acknowledged: number;
}

/** The lock is no longer held, or must be assumed lost. `cause` is the last failure of a command, if any. */
export declare class LockLost extends Error {
  constructor(resource: string, why: string, cause?: unknown);
  readonly resource: string;
}

/** A module of NestJS, and decorators that run methods of providers and controllers under locks. */
import type { DynamicModule, ModuleMetadata, Type } from '@nestjs/common' with { 'resolution-mode': 'import' };
import type { AnyClient, Lock, LockOptions, OnceOptions } from './index.js';

export interface DlockModuleOptions {
  /** A connected client. The application closes it. */
  client: AnyClient;
  /** The default options of every lock that is acquired through the module. */
  defaults?: LockOptions;
}

export interface DlockOptionsFactory {
  createDlockOptions(): Promise<DlockModuleOptions> | DlockModuleOptions;
}

export interface DlockModuleExtras {
  /** Whether other modules can inject the `DLock` without an import of this module. Default true. */
  isGlobal?: boolean;
}

export interface DlockModuleAsyncOptions extends DlockModuleExtras, Pick<ModuleMetadata, 'imports'> {
  inject?: any[];
  useFactory?: (...injected: any[]) => Promise<DlockModuleOptions> | DlockModuleOptions;
  useClass?: Type<DlockOptionsFactory>;
  useExisting?: Type<DlockOptionsFactory>;
}

/** Provides and exports a `DLock`, which can be injected by its class. */
export declare class DlockModule {
  static forRoot(options: DlockModuleOptions & DlockModuleExtras): DynamicModule;
  static forRootAsync(options: DlockModuleAsyncOptions): DynamicModule;
}

/** Decorates a method that returns a promise. */
export type Decorator<A extends any[]> = (
  target: object,
  name: string | symbol,
  descriptor: TypedPropertyDescriptor<(...args: A) => Promise<any>>,
) => void;

/**
 * The method runs under a lock, as in `DLock.using`. Rejects with `NotGranted` if the lock is not granted in time.
 *
 * @param key the name of the lock, or a function that returns it for the arguments of the call
 */
export declare function Locked<A extends any[] = any[]>(
  key: string | ((...args: A) => string | Promise<string>),
  options?: LockOptions,
): Decorator<A>;

/**
 * The method runs at most once in each period, on all machines together, as in `DLock.once`. The call resolves with
 * whether this call has run the method.
 *
 * @param period milliseconds, or a time such as `1d`, `12h` or `1h30m`
 * @param options `key` is the name of the lock, by default the class and the method
 */
export declare function Once(period: string | number, options?: OnceOptions & { key?: string }): Decorator<any[]>;

/** The lock of the decorated method that calls this: its `token` and `signal`. undefined outside of such a method. */
export declare function currentLock(): Lock | undefined;

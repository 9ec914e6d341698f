'use strict';
/** A module of NestJS, and decorators that run methods of providers and controllers under locks. */

const { AsyncLocalStorage } = require('node:async_hooks');

const { ConfigurableModuleBuilder, Inject, Module } = require('@nestjs/common');

const { DLock } = require('./dlock.js');
const { keptFor } = require('./once.js');
const { checkResource, checkedOptions } = require('./options.js');
const { mustBe } = require('./words.js');

/**
 * @typedef {import('./index.js').LockOptions} LockOptions
 * @typedef {import('./index.js').Lock} Lock
 *
 * @typedef {object} Call of a decorated method
 * @property {DLock} dlock
 * @property {string} place the class and the method
 * @property {any} self
 * @property {unknown[]} words its arguments
 */

const { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN } = new ConfigurableModuleBuilder({ moduleName: 'Dlock' })
  .setClassMethodName('forRoot')
  .setFactoryMethodName('createDlockOptions')
  .setExtras({ isGlobal: true }, globally)
  .build();

/**
 * @param {object} definition
 * @param {{ isGlobal: boolean }} extras
 */
function globally(definition, { isGlobal }) {
  return { ...definition, global: isGlobal };
}

class DlockModule extends ConfigurableModuleClass {}
Module({
  providers: [
    {
      provide: DLock,
      inject: [MODULE_OPTIONS_TOKEN],
      useFactory: (/** @type {any} */ { client, defaults }) => new DLock(client, defaults),
    },
  ],
  exports: [DLock],
})(DlockModule);

/** The property of an instance that Nest sets to the DLock of the module. */
const INJECTED = Symbol('dlock');

/** @type {AsyncLocalStorage<Lock>} */
const running = new AsyncLocalStorage();

/** The lock of the decorated method that calls this. */
function currentLock() {
  return running.getStore();
}

/**
 * @param {string | ((...words: any[]) => string)} key the name of the lock, or a function that returns it and gets the
 *     arguments of the method
 * @param {LockOptions} [options]
 */
function Locked(key, options = {}) {
  if (typeof key !== 'function') checkResource(key);
  checkedOptions(options);
  return decorator(async ({ dlock, self, words }, run) => {
    const resource = typeof key === 'function' ? await key.apply(self, words) : key;
    return dlock.using(resource, options, (_, lock) => run(lock));
  });
}

/**
 * @param {string | number} period ms, or a time such as `1d` or `1h30m`
 * @param {import('./index.js').OnceOptions & { key?: string }} [options]
 */
function Once(period, { key, ...options } = {}) {
  const ms = typeof period === 'string' ? periodOf(period) : period;
  keptFor(ms); // throws if the period is too short
  return decorator(({ dlock, place }, run) => dlock.once(key ?? place, ms, options, (_, lock) => run(lock)));
}

/**
 * @param {(call: Call, run: (lock: Lock) => Promise<any>) => Promise<any>} around
 * @returns {(target: any, name: string | symbol, descriptor: PropertyDescriptor) => void}
 */
function decorator(around) {
  return (target, name, descriptor) => {
    const method = descriptor.value;
    if (typeof target === 'function') throw new TypeError('a static method has no module: decorate one of an instance');
    const place = `${target.constructor.name}.${String(name)}`;
    Inject(DLock)(target, INJECTED);
    /**
     * @this {any}
     * @param {unknown[]} words
     */
    async function locked(...words) {
      const dlock = this[INJECTED];
      if (!dlock) throw new Error(`${place} needs an instance that Nest has made, and DlockModule.forRoot`);
      return around({ dlock, place, self: this, words }, (lock) => running.run(lock, () => method.apply(this, words)));
    }
    Object.defineProperty(locked, 'name', { value: method.name });
    // Nest finds routes, guards and cron jobs in what other decorators have left on the function.
    const { defineMetadata, getMetadata, getMetadataKeys } = /** @type {any} */ (Reflect);
    for (const each of getMetadataKeys(method)) defineMetadata(each, getMetadata(each, method), locked);
    descriptor.value = locked;
  };
}

/** @param {string} text */
function periodOf(text) {
  const parts = /^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?$/.exec(text);
  if (!text || !parts) throw new TypeError(mustBe('period', 'a time such as 1d, 12h or 1h30m', text));
  const [days, hours, minutes, seconds, rest] = parts.slice(1).map((part) => Number(part ?? 0));
  return ((((days ?? 0) * 24 + (hours ?? 0)) * 60 + (minutes ?? 0)) * 60 + (seconds ?? 0)) * 1000 + (rest ?? 0);
}

module.exports = { DlockModule, Locked, Once, currentLock };

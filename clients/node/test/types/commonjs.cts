// A program in CommonJS, with `module: node16`.
import { DLock, NotGranted } from 'redis-dlock';
import dlock = require('redis-dlock');
import { Redis } from 'ioredis';

export async function program(): Promise<boolean> {
  try {
    const lock = await new DLock(new Redis()).acquire('name', { wait: 0 });
    return (await lock.release()) && lock instanceof dlock.DLock;
  } catch (error) {
    if (error instanceof NotGranted) return error.resource === 'name';
    throw error;
  }
}

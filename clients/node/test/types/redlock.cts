// A program written for redlock 5, in CommonJS, with `module: node16`.
import Redlock, { ExecutionError } from 'redis-dlock/redlock';
import required = require('redis-dlock/redlock');
import { Redis } from 'ioredis';

export async function program(): Promise<boolean> {
  const redlock: Redlock = new required.default([new Redis()]);
  const failure = await redlock.acquire(['a'], 5000).catch((error: unknown) => error);
  return failure instanceof ExecutionError && redlock instanceof Redlock;
}

/** An application of NestJS that the tests start several times, as on several machines. */

import 'reflect-metadata';

import {
  Body, Catch, Controller, Get, Inject, Injectable, Module, Param, ParseIntPipe, Post, Scope, UseFilters,
  type ArgumentsHost, type ExceptionFilter,
} from '@nestjs/common';
import { Cron, ScheduleModule } from '@nestjs/schedule';
import { Redis } from 'ioredis';
import { DLock, NotGranted } from 'redis-dlock';
import { DlockModule, Locked, Once, currentLock, type DlockOptionsFactory } from 'redis-dlock/nest';

const port = Number(process.env['DLOCK_TEST_PORT']);
/** Closed by the test. */
export const clients: Redis[] = [];

export function connected(at = port): Redis {
  const client = new Redis({ host: '127.0.0.1', port: at });
  clients.push(client);
  return client;
}

@Injectable()
class Settings implements DlockOptionsFactory {
  readonly redis = connected();
  createDlockOptions() {
    return { client: this.redis, defaults: { lease: 5000, wait: 20_000 } };
  }
}

@Module({ providers: [Settings], exports: [Settings] })
class SettingsModule {}

@Injectable()
export class Stock {
  readonly runs: number[] = [];
  readonly redis: Redis;

  constructor(@Inject(Settings) settings: Settings, readonly dlock: DLock) {
    this.redis = settings.redis;
  }

  @Locked((article: number, by: number) => `stock:${article}:${by > 0}`)
  async take(article: number, by: number) {
    const left = Number(await this.redis.get(`left:${article}`));
    await new Promise((resolve) => setTimeout(resolve, 5));
    await this.redis.set(`left:${article}`, left - by);
    return currentLock()?.token;
  }

  @Locked('alone', { wait: 0, lease: 1000 })
  async alone(work: () => Promise<void>) {
    await work();
    return currentLock()?.resource;
  }

  @Cron('* * * * * *')
  @Once('2s', { key: 'cron' })
  async report() {
    this.runs.push(currentLock()?.token ?? 0);
  }
}

@Injectable()
export class MoreStock extends Stock {
  override async alone(work: () => Promise<void>) {
    return `more ${await super.alone(work)}`;
  }
}

@Injectable({ scope: Scope.REQUEST })
class Asked {
  @Locked('asked')
  async token() {
    return currentLock()?.token;
  }
}

@Catch(NotGranted)
class Busy implements ExceptionFilter<NotGranted> {
  catch(error: NotGranted, host: ArgumentsHost) {
    host.switchToHttp().getResponse().status(409).json({ busy: error.resource });
  }
}

@Controller('stock')
@UseFilters(Busy)
class StockController {
  constructor(readonly stock: Stock, readonly asked: Asked) {}

  @Post(':article')
  async take(@Param('article', ParseIntPipe) article: number, @Body('by') by: number) {
    return { token: await this.stock.take(article, by) };
  }

  @Locked('route', { wait: 0 })
  @Get('above')
  async above() {
    return { token: currentLock()?.token, asked: await this.asked.token() };
  }

  @Get('below')
  @Locked('route', { wait: 0 })
  async below() {
    return { token: currentLock()?.token };
  }
}

@Module({
  imports: [
    ScheduleModule.forRoot(),
    SettingsModule,
    DlockModule.forRootAsync({ imports: [SettingsModule], useExisting: Settings }),
  ],
  controllers: [StockController],
  providers: [Stock, MoreStock, Asked],
})
export class AppModule {}

@Injectable()
export class Plain {
  @Locked('job')
  async run() {
    return currentLock()?.token;
  }
}

export function moduleOf(client: Redis, isGlobal: boolean) {
  const options = { useFactory: (found: Redis) => ({ client: found }), inject: ['CLIENT'], isGlobal };

  @Module({ providers: [{ provide: 'CLIENT', useValue: client }], exports: ['CLIENT'] })
  class ClientModule {}

  @Module({ providers: [Plain] })
  class PlainModule {}

  @Module({ imports: [DlockModule.forRootAsync({ imports: [ClientModule], ...options }), PlainModule] })
  class Root {}
  return Root;
}

// @ts-expect-error a method without a promise is not run under a lock
class Wrong { @Locked('name') sync() { return 1; } }
void Wrong;

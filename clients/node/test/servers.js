/** Servers beside the one at DLOCK_TEST_HOST and DLOCK_TEST_PORT: clusters, sentinels, replicas. */

import { spawn } from 'node:child_process';
import dgram from 'node:dgram';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';

import { Cluster, Redis } from 'ioredis';
import { createCluster } from 'redis';

import { until } from './fixture.js';

const binary = process.env.DLOCK_SERVER ?? 'redis-server';
const module = process.env.DLOCK_MODULE ?? join(import.meta.dirname, '../../../target/release/libdlock.so');

/** Ended with the file. (An `after` in a hook would run at the end of that hook.) */
const running = new Set();
after(() => Promise.all([...running].map((stop) => stop())));
/** Killed if the file is ended because it takes too long. */
const children = new Set();
process.on('exit', () => children.forEach((child) => child.kill('SIGKILL')));
process.on('SIGTERM', () => process.exit(1));

/** Processes with adjacent ids begin far apart. */
let next = process.pid * 97;

/** A port where nobody listens, and that no other suite takes as long as this process runs: see CONTRIBUTING.md. */
export async function freePort() {
  for (;;) {
    const at = { port: 11_000 + (next++ % 10_000), address: '127.0.0.1' };
    const held = dgram.createSocket('udp4').unref();
    const listener = net.createServer();
    try {
      await once(held.bind(at), 'listening');
      await once(listener.listen(at.port, at.address), 'listening');
      await new Promise((resolve) => listener.close(resolve));
      return at.port;
    } catch {
      held.close();
    }
  }
}

/** A server on a free port, or on the one given. It ends with the file, or with `stop()`. */
export async function start({ options = [], withModule = true, port, sentinel } = {}) {
  const at = port ?? (await freePort());
  const home = await mkdtemp(join(tmpdir(), 'dlock-'));
  const words = [];
  if (sentinel) {
    await writeFile(join(home, 'sentinel.conf'), sentinel);
    words.push(join(home, 'sentinel.conf'), '--sentinel');
  }
  words.push('--port', String(at), '--bind', '127.0.0.1', '--dir', home);
  if (!sentinel) words.push('--save', '', '--repl-diskless-sync-delay', '0');
  if (withModule && !sentinel) words.push('--loadmodule', module);
  const child = spawn(binary, [...words, ...options], { stdio: 'ignore' });
  children.add(child);
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const client = new Redis({ host: '127.0.0.1', port: at, retryStrategy: () => 20, maxRetriesPerRequest: null });
  client.on('error', () => {});
  /** SIGSTOP: connections to it are made, but nobody answers on them. */
  const freeze = () => child.kill('SIGSTOP');
  const thaw = () => child.kill('SIGCONT');
  const stop = async () => {
    client.disconnect();
    child.kill('SIGKILL');
    await ended;
    await rm(home, { recursive: true, force: true });
  };
  running.add(stop);
  // The port, or that of the bus, may have gone to another program first.
  const isOurs = client.info('server').then((info) => info.includes(`process_id:${child.pid}\r\n`));
  if (!(await Promise.race([isOurs, ended.then(() => false)]))) {
    await stop();
    running.delete(stop);
    if (port) throw new Error(`the port ${port} is not free`);
    return start({ options, withModule, sentinel });
  }
  return { port: at, run: (...command) => client.call(...command), stop, freeze, thaw };
}

/** A primary with a replica that is in step. */
export async function primaryAndReplica() {
  const [primary, replica] = await Promise.all([start(), start()]);
  await replica.run('REPLICAOF', '127.0.0.1', String(primary.port));
  await until('the replica is in step', async () =>
    (await primary.run('INFO', 'replication')).includes(`port=${replica.port},state=online`),
  );
  // The first acknowledgement takes longer than those that follow.
  await primary.run('SET', 'replicated', '1');
  await primary.run('DEL', 'replicated');
  await primary.run('WAIT', '1', '20000');
  return { primary, replica };
}

/** Nodes that share the slots equally, and a function that finds the node of a key. */
async function nodesOfCluster(number, timeout) {
  const options = ['--cluster-enabled', 'yes', '--cluster-node-timeout', String(timeout)];
  const nodes = await Promise.all(Array.from({ length: number }, () => start({ options })));
  const share = Math.ceil(16384 / number);
  for (const [at, { run, port }] of nodes.entries()) {
    await run('CLUSTER', 'ADDSLOTSRANGE', String(at * share), String(Math.min((at + 1) * share, 16384) - 1));
    await nodes[0].run('CLUSTER', 'MEET', '127.0.0.1', String(port));
  }
  await untilKnown(nodes, number);
  return {
    nodes,
    /** The node that has the key; -1: none has it now. */
    async indexOf(key, from = 0) {
      const slot = await nodes[from].run('CLUSTER', 'KEYSLOT', key);
      const slots = await nodes[from].run('CLUSTER', 'SLOTS');
      const found = slots.find(([first, last]) => first <= slot && slot <= last);
      return nodes.findIndex(({ port }) => port === found?.[2][1]);
    },
  };
}

async function untilKnown(nodes, number) {
  for (const { run } of nodes) {
    await until('the nodes know each other', async () => {
      const info = await run('CLUSTER', 'INFO');
      return info.includes('cluster_state:ok') && info.includes(`cluster_known_nodes:${number}`);
    });
  }
}

/** Clients of a cluster, by the package that they are of. */
export const CLUSTERS = {
  ioredis: async (ports) => {
    const client = new Cluster(ports.map((port) => ({ host: '127.0.0.1', port })));
    client.on('error', () => {});
    await new Promise((resolve) => client.once('ready', resolve));
    return { client, close: () => client.disconnect() };
  },
  'node-redis': async (ports) => {
    const client = createCluster({ rootNodes: ports.map((port) => ({ socket: { host: '127.0.0.1', port } })) });
    client.on('error', () => {});
    await client.connect();
    return { client, close: () => client.destroy() };
  },
};

/** The only node of a cluster. */
export async function nodeOfCluster() {
  const { nodes } = await nodesOfCluster(1, 5000);
  return nodes[0];
}

/** Two nodes, with half of the slots each, and a function that gives the slot of a key to the other one. */
export async function cluster() {
  const { nodes, indexOf } = await nodesOfCluster(2, 5000);
  const ids = await Promise.all(nodes.map(({ run }) => run('CLUSTER', 'MYID')));
  return {
    ports: nodes.map(({ port }) => port),
    nodes,
    indexOf,
    /** A command to the node that has the key. */
    on: async (key, ...command) => nodes[await indexOf(key)].run(...command),
    /** Gives the slot of a key, the only one in it, to the other node, without telling any client. */
    async move(key) {
      const [slot, here] = [await nodes[0].run('CLUSTER', 'KEYSLOT', key), await indexOf(key)];
      const isThere = await nodes[here].run('EXISTS', key);
      const setSlot = (node, ...words) => nodes[node].run('CLUSTER', 'SETSLOT', String(slot), ...words);
      // A node that imports a slot gets a higher epoch. Without it, gossip of the old node could take the slot back.
      await setSlot(1 - here, 'IMPORTING', ids[here]);
      await setSlot(here, 'MIGRATING', ids[1 - here]);
      if (isThere) {
        await nodes[here].run('MIGRATE', '127.0.0.1', String(nodes[1 - here].port), key, '0', '10000');
      }
      for (const node of [1 - here, here]) await setSlot(node, 'NODE', ids[1 - here]);
    },
  };
}

/** Three nodes of a cluster, the first of which has a replica. */
export async function clusterWithReplica() {
  // On a busy machine, a node may be silent for a second. With a shorter timeout, its replica would take over.
  const timeout = 4000;
  const { nodes, indexOf } = await nodesOfCluster(3, timeout);
  const options = ['--cluster-enabled', 'yes', '--cluster-node-timeout', String(timeout)];
  const replica = await start({ options });
  nodes.push(replica);
  await replica.run('CLUSTER', 'MEET', '127.0.0.1', String(nodes[0].port));
  await untilKnown(nodes, 4);
  await replica.run('CLUSTER', 'REPLICATE', await nodes[0].run('CLUSTER', 'MYID'));
  await until('the replica is in step', async () =>
    (await nodes[0].run('INFO', 'replication')).includes(`port=${replica.port},state=online`),
  );
  await replica.run('READONLY'); // or it would answer MOVED
  /** The first of many names that is on the first node. */
  const name = async () => {
    for (let at = 0; ; at += 1) if ((await indexOf(`job:${at}`)) === 0) return `job:${at}`;
  };
  return {
    ports: nodes.map(({ port }) => port),
    nodes,
    indexOf,
    primary: nodes[0],
    replica,
    key: await name(),
    /** Waits until the replica has taken over. */
    taken: (key) => until('it has taken over', async () => (await indexOf(key, 1)) === nodes.indexOf(replica)),
  };
}

/** A primary, a replica and a sentinel that watches them. */
export async function sentinels() {
  const { primary, replica } = await primaryAndReplica();
  const watcher = await start({
    sentinel: [
      `sentinel monitor main 127.0.0.1 ${primary.port} 1`,
      'sentinel down-after-milliseconds main 4000', // a server on a busy machine may be silent for a second
      'sentinel failover-timeout main 5000',
      '',
    ].join('\n'),
  });
  await until('the sentinel knows that the replica is fit', async () => {
    const [replica, ...others] = await watcher.run('SENTINEL', 'REPLICAS', 'main');
    return replica?.[replica.indexOf('master-link-status') + 1] === 'ok' && others.length === 0;
  });
  return {
    port: watcher.port,
    primary,
    replica,
    /** Kills the primary, and waits until the replica has taken over. */
    async failover() {
      await primary.stop();
      await until('the replica is the primary', async () => (await replica.run('ROLE'))[0] === 'master');
    },
  };
}

/**
 * Tests of the sources that decide, without a server. `room` in play.js loads such a source. Those in `PURE` know no
 * clock and no socket; `heart` runs on a clock and a client of the test.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { room, sourceOf } from './play.js';

const PURE = ['attempt', 'binding', 'heartbeat', 'limits', 'profile', 'validity'];

test('the pure sources use no clock, no timer, no process, no chance, and require only each other', () => {
  for (const name of PURE) {
    const text = sourceOf(name);
    assert.doesNotMatch(text, /performance|Date|setTimeout|setImmediate|process\.|async |await |Math\.random/, name);
    const needs = [...text.matchAll(/require\('\.?\/?([\w./]+?)(?:\.js)?'\)/g)].map(([, path]) => path);
    assert(needs.every((each) => PURE.includes(each)), `${name} needs ${needs}`);
  }
});

/** Returns a binding, as binding.js describes it. `cap` is the time at which a cap ends the hold. */
function hold(name, cap = Infinity) {
  return { key: name, database: undefined, token: 1, bind: () => [], info: [[name]], lose() {}, unbound: undefined, cap, isCapKnown: false };
}

test('a hold is certain no longer than its session, its binding and its cap', () => {
  const { Bindings } = room('binding');
  const [bindings, plain, capped] = [new Bindings(), hold('plain'), hold('capped', 500)];
  bindings.add(plain);
  bindings.add(capped);
  assert.deepEqual([bindings.untilOf(plain, 900), bindings.untilOf(capped, 900)], [900, 500]);
  assert.equal(bindings.firstEnd(900), 500);
  // The server does not know the session. Each hold stays certain until 900, even if the session is opened again.
  bindings.unbind(900);
  assert.deepEqual([bindings.untilOf(plain, 3000), bindings.untilOf(capped, 3000)], [900, 500]);
  bindings.unbind(3000);
  assert.equal(bindings.untilOf(plain, 3000), 900, 'a second call of unbind does not move the end');
  assert.deepEqual(bindings.over(500).map(({ why }) => why), ['it reached its cap']);
  assert.deepEqual(bindings.over(900).map(({ binding }) => binding.key), ['plain', 'capped']);
  plain.unbound = undefined;
  assert.equal(bindings.untilOf(plain, 3000), 3000, 'a hold that is bound again is certain as long as its session');
});

test('all holds are bound again if the server has fewer than it must have', () => {
  const { Bindings } = room('binding');
  const [bindings, one, two, late] = [new Bindings(), hold('one'), hold('two'), hold('late')];
  bindings.add(one);
  bindings.add(two);
  const known = bindings.all;
  bindings.adopt(late, 700);
  const toBind = (number, until) => bindings.toBind(known, number, until).map(({ key }) => key);
  assert.deepEqual(toBind(2, 600), ['late']);
  assert.deepEqual(bindings.untilOf(one, 900), 900);
  // If one is missing, each is certain no longer than before until it is bound. Those that end first are bound first.
  assert.deepEqual(toBind(1, 600), ['one', 'two', 'late']);
  assert.deepEqual([one, two, late].map((each) => bindings.untilOf(each, 900)), [600, 600, 700]);
  one.unbound = undefined;
  assert.deepEqual(toBind(1, 800), ['two', 'late', 'one']);
  assert.deepEqual([one, two, late].map((each) => bindings.untilOf(each, 900)), [800, 600, 700]);
  bindings.delete(one);
  two.unbound = undefined;
  assert.deepEqual(toBind(1, 900), ['late'], 'the hold `one` is released');
});

test('each piece has holds of one database, and no more than the limit', () => {
  const { Bindings } = room('binding');
  const some = [0, 6, 0, 0, 6].map((database, at) => ({ ...hold(`job:${at}`), database }));
  // Each text has the numbers of the holds in a piece.
  const pieces = Bindings.pieces(some, 2).map((piece) => piece.map(({ key }) => key.slice(4)).join(''));
  assert.deepEqual(pieces, ['02', '14', '3']);
  assert.deepEqual(Bindings.pieces([], 2), []);
});

test('the profile of a client follows its commands and the answers of CLIENT INFO', () => {
  const { Profile, differenceOf, presentOf } = room('profile');
  const profile = new Profile();
  profile.told(presentOf('id=3 addr=127.0.0.1:5 name= db=4 sub=0 user=default resp=3'));
  assert.deepEqual([profile.database, profile.login, profile.name], [4, undefined, '']);
  const undo = profile.sends(['select', '6']);
  assert.equal(profile.database, 6);
  undo(true);
  assert.equal(profile.database, 4);
  profile.sends(['AUTH', 'one']);
  assert.deepEqual(profile.login, { username: undefined, password: 'one' });
  profile.sends(['HELLO', '3', 'AUTH', 'app', 'two', 'SETNAME', 'x']);
  assert.deepEqual([profile.login, profile.name], [{ username: 'app', password: 'two' }, 'x']);
  profile.sends(['HELLO', '3', 'SETNAME', 'auth'])(true);
  assert.deepEqual([profile.login, profile.name], [{ username: 'app', password: 'two' }, 'x'], 'it was refused');
  profile.sends(['HELLO', '3', 'SETNAME', 'auth']);
  assert.deepEqual([profile.login, profile.name], [{ username: 'app', password: 'two' }, 'auth']);
  profile.sends(['RESET'])(true);
  assert.deepEqual([profile.database, profile.login?.username, profile.name], [4, 'app', 'auth'], 'it was refused');
  profile.ended();
  assert.deepEqual([profile.database, profile.login], [4, undefined]);
  profile.sends(['AUTH', 'one']);
  profile.sends(['reset']);
  assert.deepEqual([profile.database, profile.login], [0, undefined]);
  const one = { database: 0, user: 'default', name: '' };
  assert.match(differenceOf(one, { ...one, user: 'app' }), /the user default, and the client has app/);
  assert.match(differenceOf(one, { ...one, database: 6 }), /the database 0, and the client has 6/);
  assert.equal(differenceOf(one, { ...one, name: 'x' }), undefined);
  assert.equal(differenceOf({}, one), undefined, 'what the server does not say is no difference');
});

test('a database that the client selects counts before the server tells one, and after an older answer', async () => {
  const { State, stateOf } = room('wire/state');
  const client = { sendCommand: (words, reply = Promise.resolve('OK')) => reply };
  let tell;
  const ask = () => new Promise((resolve) => (tell = resolve));
  const read = ([words], reply) => ({ command: words, reply });
  let selects = 0;
  const state = stateOf(client, () => new State(ask, () => true, () => selects), read, 'close');
  assert.equal(state.database, 0);
  const learned = state.learn();
  client.sendCommand(['SELECT', '6']);
  assert.equal(state.database, 6, 'before the answer');
  tell('id=3 db=0 user=default name=');
  await learned;
  assert.equal(state.database, 6, 'after an answer that is older');
  await assert.rejects(client.sendCommand(['SELECT', '99'], Promise.reject(new Error('ERR DB index is out of range'))));
  assert.equal(state.database, 6, 'after a command that was refused');
  state.ended();
  assert.equal(state.database, 0, 'the next connection is in the database of the client');
  // The server does not tell. The client selects its database again when it has connected again.
  client.sendCommand(['SELECT', String((selects = 6))]);
  const refused = state.look();
  tell(Promise.reject(new Error('NOPERM this user has no permissions')));
  await refused;
  client.sendCommand(['RESET']);
  assert.equal(state.database, 0, 'after a RESET');
  state.ended();
  assert.deepEqual([state.database, (await state.look()).database], [6, 6], 'after a RESET and a reconnect');
});

test('a refused command takes back what it has set, and nothing that other commands have set', () => {
  const { Profile } = room('profile');
  const WAYS = {
    database: { before: 4, command: (at) => ['SELECT', String(at)], value: ({ database }) => database },
    login: { before: undefined, command: (at) => ['AUTH', String(at)], value: ({ login }) => login && +login.password },
    name: { before: '', command: (at) => ['CLIENT', 'SETNAME', String(at)], value: ({ name }) => name && +name },
  };
  for (const [what, { before, command, value }] of Object.entries(WAYS)) {
    // Three commands are sent together. Each bit says whether the server refuses one of them.
    for (let refusals = 0; refusals < 8; refusals += 1) {
      const profile = new Profile();
      profile.told({ database: 4, name: '' });
      const isRefused = (at) => Boolean(refusals & (1 << at));
      const sent = [0, 1, 2].map((at) => ({ at, answered: profile.sends(command(at)) }));
      for (const { at, answered } of sent) {
        answered(isRefused(at));
        const left = sent.filter((each) => each.at > at || !isRefused(each.at));
        assert.equal(value(profile), left.at(-1)?.at ?? before, `${what}: ${refusals}, after answer ${at}`);
      }
    }
  }
});

test('a database is known only from a command that was not refused, or from the server', async () => {
  const { State, stateOf } = room('wire/state');
  const REFUSAL = new Error('ERR DB index is out of range');
  const read = ([words], reply) => ({ command: words, reply });
  for (const [sent, known] of [['99 7', 7], ['7 99', 7], ['99 98', undefined], ['99 7 98', 7], ['99 98 7', 7]]) {
    const client = { sendCommand: (_, reply) => reply };
    let asked = 0;
    const ask = async () => `id=3 db=${(asked += 1) && 5} user=default name=`;
    const state = stateOf(client, () => new State(ask, () => true, () => 1), read, 'close');
    const isRefused = (database) => database.startsWith('9');
    await Promise.allSettled(sent.split(' ').map((database) =>
      client.sendCommand(['SELECT', database], isRefused(database) ? Promise.reject(REFUSAL) : Promise.resolve('OK')),
    ));
    assert.equal(state.database, known ?? 1, sent);
    await state.learn();
    assert.deepEqual([state.database, asked], known ? [known, 0] : [5, 1], sent);
  }
});

test('an unanswered command with a shorter lease counts, however many later commands have no answer', () => {
  const { Validity } = room('validity');
  const hold = new Validity(0, { lease: 10_000, sent: 0 });
  hold.sends(0, 5000);
  for (let now = 1; now < 1000; now += 1) hold.sends(now, 10_000);
  const last = hold.sends(1000, 10_000);
  hold.ok(1010, last);
  assert.equal(hold.until, 1000 + 5000 - 2); // a lease ends 2 ms early, because both sides count whole ms
});

/**
 * Opens a manual session of 3 s, on a client and a clock of the test. A heartbeat takes `beat` ms, and any other command
 * 10 ms. `replies` has the replies by command: an error, or a result. Without one, a command gets 2: for a heartbeat, this
 * is the number of bindings. `sent` has the names of the commands, and `pass` lets time pass.
 */
async function openHeart(t, replies, beat) {
  const { Heart } = room('heart');
  const running = setInterval(() => {}, 1000); // the timers of a session do not keep a program running
  t.after(() => clearInterval(running));
  let now = performance.now();
  const pass = (ms) => (now += ms);
  t.mock.method(performance, 'now', () => now);
  const sent = [];
  const send = async ([name]) => {
    sent.push(name);
    pass(name === 'DLOCK.SESSION' ? beat : 10);
    if (replies[name] instanceof Error) throw replies[name];
    return replies[name] ?? 2;
  };
  const connect = async () => {
    pass(100);
    throw new Error('there is no server');
  };
  const client = { send, connect, repeats: () => 0 };
  const heart = new Heart({ client, timeout: 3000, manual: true, inCluster: false, lost() {} }, 'id', 'job');
  await heart.open();
  return { heart, sent, pass };
}

/** Opens such a session whose heartbeats take more than a third of its timeout. */
async function slowHeart(t, replies) {
  return (await openHeart(t, replies, 1200)).heart;
}

/** The commands of a binding: `RENEW` stands for binding a hold, `INFO` for asking for its cap. */
const COMMANDS = { bind: () => [['RENEW', 'job']], info: [['INFO', 'job']] };

test('a heartbeat whose answer is late still binds locks again and asks for caps', async (t) => {
  const heart = await slowHeart(t, { RENEW: 1, INFO: ['holds', [['token', 1]]] });
  const [unbound, plain] = ['one', 'two'].map((name) => ({ ...hold(name), ...COMMANDS, heart }));
  heart.join(plain, 'id', 1);
  heart.begin(plain, performance.now() + 9000);
  heart.adopt(unbound, performance.now() + 3000);
  for (const end = performance.now() + 8000; performance.now() < end; ) await heart.next(new AbortController().signal);
  assert.equal(heart.reason, undefined, 'the session is kept');
  assert(unbound.unbound === undefined && plain.isCapKnown);
  await heart.close();
});

test('a lock whose cap the server does not tell is lost at the end of its first lease', async (t) => {
  const heart = await slowHeart(t, { INFO: new Error('ERR not now') });
  const end = performance.now() + 9000;
  let why;
  const binding = { ...hold('one'), ...COMMANDS, heart, lose: (said) => (why = said) };
  heart.join(binding, 'id', 1);
  heart.begin(binding, end);
  while (why === undefined) {
    assert(heart.untilOf(binding) <= end, 'the lock is certain no longer than its first lease');
    await heart.next(new AbortController().signal);
  }
  assert.equal(why, 'it reached its cap');
  assert(performance.now() >= end && heart.reason === undefined, 'the lock is lost, and its session is not');
  await heart.close();
});

for (const [what, error] of [
  ['refused', new Error('NOREPLICAS Not enough good replicas to write.')],
  ['not answered', new Error('Connection is closed.')],
]) {
  test(`locks of which the server misses one are certain no longer than before, while binding is ${what}`, async (t) => {
    const replies = { RENEW: error };
    const { heart, pass } = await openHeart(t, replies, 10);
    const lost = [];
    const [deleted, kept] = ['deleted', 'kept'].map((name) => ({
      ...hold(name),
      ...COMMANDS,
      ...{ heart, lose: (why) => lost.push([name, why]), isCapKnown: true },
    }));
    for (const binding of [deleted, kept]) heart.join(binding, 'id', 1);
    const next = () => heart.next(new AbortController().signal);
    await next();
    const end = heart.untilOf(deleted);
    replies['DLOCK.SESSION'] = 1;
    while (lost.length === 0) {
      pass(200);
      await next();
      assert(heart.untilOf(deleted) <= end && heart.untilOf(kept) <= end, 'a lock is certain for longer');
    }
    assert.deepEqual(lost.map(([name]) => name), ['deleted', 'kept']);
    assert.match(lost[0][1], /not bound to the session again in time/);
    assert.equal(heart.reason, undefined, 'the session is kept');
    await heart.close();
  });
}

test('a manual session sends a heartbeat when the program beats, and at no other time', async (t) => {
  const replies = {};
  const { heart, sent, pass } = await openHeart(t, replies, 10);
  const lock = { ...hold('one', performance.now() + 2700), ...COMMANDS, heart, isCapKnown: true };
  const beats = () => sent.filter((name) => name === 'DLOCK.SESSION').length;
  let expected = beats();
  const isSent = async (more, what) => {
    await sleep(200);
    expected += more;
    assert.equal(beats(), expected, what);
  };
  heart.beat();
  pass(1000);
  heart.join(lock, 'id', 1);
  heart.begin(lock, performance.now() + 9000); // sets the timer to the next event
  await isSent(0, 'a beat before a heartbeat is due');
  replies['DLOCK.SESSION'] = new Error('ERR not now');
  heart.beat();
  await isSent(1, 'a beat when a heartbeat is due');
  delete replies['DLOCK.SESSION'];
  pass(500);
  await isSent(0, 'a heartbeat that failed');
  heart.beat();
  await isSent(1, 'the next beat');
  await heart.close();
});

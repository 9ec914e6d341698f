'use strict';
/** The errors of acquiring and keeping a lock, and what the error of a command tells: may it be sent again? */

/** The answers of a server that cannot grant a lock now: it is starting, is no primary, or has too many clients. */
const NOT_NOW = /^(LOADING |UNBLOCKED .*state changed|READONLY |MASTERDOWN |ERR WAIT cannot be used with replica|ERR max number of clients)/;

/** The lock was not granted within the time to wait. */
class NotGranted extends Error {
  /**
   * @param {string} resource
   * @param {unknown} [cause] the answer that the key is no lock: another program has it
   */
  constructor(resource, cause) {
    super(`not granted: ${resource}`, cause === undefined ? undefined : { cause });
    this.name = 'NotGranted';
    this.resource = resource;
  }
}

/** The server did not answer in time. */
class NoAnswer extends Error {
  /**
   * @param {string} resource
   * @param {unknown} [cause]
   */
  constructor(resource, cause) {
    super(`no answer from the server in time: ${resource}`, cause === undefined ? undefined : { cause });
    this.name = 'NoAnswer';
    this.resource = resource;
  }
}

/** Too few replicas acknowledged the grant or the renewal in time. */
class TooFewReplicas extends Error {
  /**
   * @param {string} resource
   * @param {number} acknowledged
   * @param {number} wanted
   */
  constructor(resource, acknowledged, wanted) {
    super(`${acknowledged} of ${wanted} replicas acknowledged in time: ${resource}`);
    this.name = 'TooFewReplicas';
    this.resource = resource;
    this.acknowledged = acknowledged;
  }
}

/** The lock is no longer held, or must be assumed lost. */
class LockLost extends Error {
  /**
   * @param {string} resource
   * @param {string} why
   * @param {unknown} [cause] the failure of a command, after which nobody knows whether the lock is held
   */
  constructor(resource, why, cause) {
    super(`lock lost: ${resource}: ${why}`, cause === undefined ? undefined : { cause });
    this.name = 'LockLost';
    this.resource = resource;
  }
}

/** A new connection differs from the client's: it would wait as another user, or for a lock in another database. */
class Unlike extends Error {}

/** The command was not sent. */
class NotSent extends Error {}

/** How ioredis and node-redis say that they have not sent a command. */
const UNSENT =
  /^(Stream isn't writeable and enableOfflineQueue |Connection in subscriber mode, |The client is (offline|closed)$)/;

/** @param {unknown} error */
function messageOf(error) {
  return error instanceof Error ? error.message : '';
}

/**
 * Whether the error says that the command was not executed. `UNBLOCKED` does not, since a demotion ended the wait, nor
 * does the `LOADING` of an agent that has not heard from a majority. That of a starting server does.
 *
 * @param {unknown} error
 */
function isNotExecuted(error) {
  if (error instanceof NotSent || UNSENT.test(messageOf(error))) return true;
  return isAnswer(error) && !/^(UNBLOCKED |LOADING (?!\S+ is loading ))/.test(messageOf(error));
}

/**
 * Whether the error says that a command was sent and has no answer. A server may execute the command later.
 *
 * @param {unknown} error
 */
function isUnanswered(error) {
  return !isAnswer(error) && !isNotExecuted(error);
}

/**
 * Whether one of the commands that had these replies may have been executed.
 *
 * @param {PromiseSettledResult<unknown>[]} replies
 */
function isOneExecuted(replies) {
  return replies.some((reply) => reply.status === 'fulfilled' || !isNotExecuted(reply.reason));
}

/**
 * Whether a slot of a cluster is on its way to another node.
 *
 * @param {unknown} error
 */
function isMoving(error) {
  return /^(MOVED|ASK|TRYAGAIN|CLUSTERDOWN) /.test(messageOf(error));
}

/**
 * Whether the error is an answer of the server, which begins with a code in upper case. A closed socket or a timeout of
 * the client is no answer.
 *
 * @param {unknown} error
 */
function isAnswer(error) {
  return /^[A-Z]{2,}[A-Z0-9]* /.test(messageOf(error));
}

/**
 * Whether the error is an answer of a server that can grant the lock. A server that is starting or is no primary any
 * more cannot, and neither can an agent that reaches no server.
 *
 * @param {unknown} error
 */
function isHeard(error) {
  return isAnswer(error) && !mayRepeat(error);
}

/**
 * Whether the error is the answer of a server that could not grant the lock when the command came. `UNBLOCKED` is not:
 * its server could, when the wait began.
 *
 * @param {unknown} error
 */
function isNoPrimary(error) {
  return isAnswer(error) && mayRepeat(error) && !messageOf(error).startsWith('UNBLOCKED ');
}

/**
 * Whether the same command with the same REQUEST may be sent again, perhaps to another server: its outcome is unknown,
 * or the server cannot grant now. Errors of the program (TypeError, RangeError) and of the connection's settings
 * (Unlike) would come again.
 *
 * @param {unknown} error
 */
function mayRepeat(error) {
  if (error instanceof Unlike || error instanceof TypeError || error instanceof RangeError) return false;
  return !isAnswer(error) || isMoving(error) || NOT_NOW.test(messageOf(error));
}

/**
 * Whether the server accepts no writes at present, and so renews nothing. The hold stays until its lease ends.
 *
 * @param {unknown} error
 */
function writesNothing(error) {
  return /^(NOREPLICAS|MISCONF|BUSY) /.test(messageOf(error));
}

/**
 * Whether the error says that the key is no lock.
 *
 * @param {unknown} error
 */
function isWrongType(error) {
  return messageOf(error).startsWith('WRONGTYPE ');
}

/** @param {unknown} error */
function isNotPermitted(error) {
  return messageOf(error).startsWith('NOPERM ');
}

/**
 * Returns the error with which to reject. A server that does not know the commands gets a hint at the missing module.
 *
 * @param {unknown} error
 */
function explained(error) {
  if (!/^ERR unknown command\b.*\bdlock\./is.test(messageOf(error))) return error;
  return new Error(`${messageOf(error)} (is the dlock module loaded on this server?)`, { cause: error });
}

module.exports = {
  LockLost,
  NoAnswer,
  NotGranted,
  NotSent,
  TooFewReplicas,
  Unlike,
  explained,
  isAnswer,
  isHeard,
  isMoving,
  isNoPrimary,
  isNotExecuted,
  isNotPermitted,
  isOneExecuted,
  isUnanswered,
  isWrongType,
  mayRepeat,
  writesNothing,
};

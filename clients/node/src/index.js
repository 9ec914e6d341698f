'use strict';
/** Locks of the dlock module. index.d.ts says what each name promises. */
const { DLock } = require('./dlock.js');
const { LockLost, NoAnswer, NotGranted, TooFewReplicas } = require('./errors.js');
const { Session } = require('./session.js');

module.exports = { DLock, LockLost, NoAnswer, NotGranted, Session, TooFewReplicas };

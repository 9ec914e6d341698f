'use strict';
/** Every time limit of an acquisition and of its connections, in ms. Pure. */

/** How long after its end a wait expects the last answer of the server. */
const GRACE = 150;

exports.GRACE = GRACE;

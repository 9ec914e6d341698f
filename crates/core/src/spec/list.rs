//! The commands, each with its description.

use super::{Argument, KeyUse, Keys, Spec};

/// The commands for clients, in the order in which `DLOCK.HELP` shows them.
pub const COMMANDS: &[&Spec] = &[
    &ACQUIRE, &RACQUIRE, &RLOCK, &WLOCK, &SACQUIRE, &MACQUIRE, &RELEASE, &RENEW, &CHECK, &INFO, &SESSIONS, &LOG, &HELP,
];

/// Exclusive, not reentrant.
pub const ACQUIRE: Spec = acquiring("DLOCK.ACQUIRE", "Acquires a lock exclusively. Not reentrant.");
/// Exclusive, reentrant.
pub const RACQUIRE: Spec = acquiring("DLOCK.RACQUIRE", "Acquires a lock exclusively, or enters it once more.");
/// Shared, reentrant.
pub const RLOCK: Spec = acquiring("DLOCK.RLOCK", "Acquires a lock for reading, or enters it once more.");
/// The write side of [`RLOCK`], like [`RACQUIRE`]; only the id of a `REQUEST` tells them apart.
pub const WLOCK: Spec = acquiring("DLOCK.WLOCK", "Acquires a lock for writing, or enters it once more.");
/// Shared, up to a limit.
pub const SACQUIRE: Spec = Spec {
    arity: -4,
    arguments: &[
        Argument::Text("owner"),
        Argument::BareNumber("limit"),
        Argument::OneOf("entries", &[Argument::Number("PERMITS", "permits"), Argument::Word("SLOT")]),
        LEASE,
        BLOCK,
        SESSION,
        MAXHOLD,
        REQUEST,
    ],
    ..acquiring("DLOCK.SACQUIRE", "Acquires permits of a semaphore.")
};

/// Several locks at once, exclusive, not reentrant.
pub const MACQUIRE: Spec = Spec {
    name: "DLOCK.MACQUIRE",
    flags: "write deny-oom blocking getkeys-api",
    categories: "dlock write slow blocking",
    keys: Keys::Numbered(KeyUse::Update),
    arity: -4,
    summary: "Acquires several locks exclusively, all or none. Not reentrant.",
    complexity: "O(K log N) with K the number of keys and N the number of holds on each lock",
    arguments: &[Argument::Text("owner"), LEASE, BLOCK, SESSION, MAXHOLD, REQUEST],
};

/// Releases one entry, some, or all.
pub const RELEASE: Spec = Spec {
    name: "DLOCK.RELEASE",
    flags: "write fast",
    categories: "dlock write fast",
    keys: Keys::First(KeyUse::Remove),
    arity: -3,
    summary: "Releases one entry of an owner's hold, some, or all.",
    complexity: "O(log N) with N the number of holds on the lock",
    arguments: &[
        Argument::Text("owner"),
        MODE,
        Argument::OneOf("entries", &[Argument::Word("ALL"), Argument::Number("PERMITS", "permits")]),
        Argument::Number("TOKEN", "token"),
        Argument::Word("BREAK"),
        Argument::NamedText("REQUEST", "id"),
    ],
};

/// Sets the deadline of an owner's holds.
pub const RENEW: Spec = Spec {
    name: "DLOCK.RENEW",
    flags: "write fast",
    categories: "dlock write fast",
    keys: Keys::First(KeyUse::Update),
    arity: -3,
    summary: "Sets the deadline of an owner's holds.",
    complexity: "O(log N) with N the number of holds on the lock",
    arguments: &[
        Argument::Text("owner"),
        LEASE,
        MODE,
        SESSION,
        Argument::OneOf("fence", &[Argument::Number("TOKEN", "token"), Argument::Number("MINTOKEN", "token")]),
    ],
};

/// Returns how long the hold with a fencing token is still live.
pub const CHECK: Spec = Spec {
    name: "DLOCK.CHECK",
    flags: "readonly fast",
    categories: "dlock read fast",
    keys: Keys::First(KeyUse::Read),
    arity: 3,
    summary: "Returns the milliseconds left of the hold with a fencing token.",
    complexity: "O(log N) with N the number of holds on the lock",
    arguments: &[Argument::BareNumber("token")],
};

/// Shows who holds a lock, and who waits for it.
pub const INFO: Spec = Spec {
    name: "DLOCK.INFO",
    flags: "readonly",
    categories: "dlock read slow",
    keys: Keys::First(KeyUse::Read),
    arity: -2,
    summary: "Shows who holds a lock and who waits for it.",
    complexity: "O(log N) with N the number of holds on the lock, and O(M) for M holds shown or lapsed",
    arguments: &[Argument::OneOf(
        "detail",
        &[
            Argument::NamedText("OWNER", "owner"),
            Argument::Group("full", &[Argument::Word("FULL"), Argument::Number("COUNT", "count")]),
        ],
    )],
};

/// Opens a named session, keeps it open, ends it, or shows its holds; or shows the sessions.
pub const SESSIONS: Spec = Spec {
    name: "DLOCK.SESSION",
    flags: "fast",
    categories: "dlock fast connection",
    keys: Keys::None,
    arity: -2,
    summary: "Opens a named session, keeps it open, ends it, or lists its holds; or lists the sessions.",
    complexity: "O(log N) with N the number of sessions, O(M) with M the number of holds or sessions listed",
    arguments: &[Argument::Choice(
        "action",
        &[
            Argument::Group(
                "heartbeat",
                &[
                    ID,
                    Argument::Required(&Argument::Number("PX", "milliseconds")),
                    Argument::OneOf("condition", &[Argument::Word("NX"), Argument::Word("XX")]),
                ],
            ),
            Argument::Group("close", &[ID, Argument::Required(&Argument::Word("CLOSE")), USER]),
            Argument::Group("holds", &[ID, Argument::Required(&Argument::Word("LIST")), USER, COUNT]),
            Argument::Group("sessions", &[Argument::Word("LIST"), COUNT]),
        ],
    )],
};

/// Shows long waits, leases that ran out, and locks that were removed.
pub const LOG: Spec = Spec {
    name: "DLOCK.LOG",
    flags: "admin allow-loading allow-stale",
    categories: "admin slow dangerous",
    keys: Keys::None,
    arity: -2,
    summary: "Shows long waits, leases that ran out, and locks that were removed.",
    complexity: "O(N) with N the number of entries shown",
    arguments: &[Argument::Choice(
        "subcommand",
        &[
            Argument::Group("get", &[Argument::Word("GET"), Argument::MayBeNumber("count")]),
            Argument::Word("LEN"),
            Argument::Word("RESET"),
            Argument::Word("HELP"),
        ],
    )],
};

/// Shows the syntax of the commands.
pub const HELP: Spec = Spec {
    name: "DLOCK.HELP",
    flags: "allow-loading allow-stale fast",
    categories: "dlock fast",
    keys: Keys::None,
    arity: 1,
    summary: "Shows the syntax of every command.",
    complexity: "O(1)",
    arguments: &[],
};

/// The replication effect, internal.
pub const APPLY: Spec = Spec {
    name: "DLOCK.APPLY",
    flags: "write fast deny-script",
    categories: "write fast admin dangerous",
    keys: Keys::First(KeyUse::Update),
    arity: 3,
    summary: "Internal: applies a change that a primary decided on.",
    complexity: "O(log N) with N the number of holds on the lock",
    arguments: &[Argument::Text("effect")],
};

const fn acquiring(name: &'static str, summary: &'static str) -> Spec {
    Spec {
        name,
        flags: "write deny-oom blocking",
        categories: "dlock write slow blocking",
        keys: Keys::First(KeyUse::Update),
        arity: -3,
        summary,
        complexity: "O(log N) with N the number of holds on the lock",
        arguments: &[
            Argument::Text("owner"),
            LEASE,
            BLOCK,
            SESSION,
            MAXHOLD,
            Argument::Number("MINTOKEN", "token"),
            REQUEST,
        ],
    }
}

const ID: Argument = Argument::Text("id");
const USER: Argument = Argument::NamedText("USER", "name");
const COUNT: Argument = Argument::Number("COUNT", "count");

// Options that several commands have.

/// `EX seconds | PX milliseconds | EXAT unix-seconds | PXAT unix-milliseconds`.
const LEASE: Argument = Argument::OneOf(
    "lease",
    &[
        Argument::Number("EX", "seconds"),
        Argument::Number("PX", "milliseconds"),
        Argument::Number("EXAT", "unix-time-seconds"),
        Argument::Number("PXAT", "unix-time-milliseconds"),
    ],
);

/// `READ | WRITE`.
const MODE: Argument = Argument::OneOf("mode", &[Argument::Word("READ"), Argument::Word("WRITE")]);

/// `BLOCK milliseconds`.
const BLOCK: Argument = Argument::Number("BLOCK", "milliseconds");

/// `SESSION | SESSIONID id`.
const SESSION: Argument =
    Argument::OneOf("session", &[Argument::Word("SESSION"), Argument::NamedText("SESSIONID", "id")]);

/// `MAXHOLD milliseconds`.
const MAXHOLD: Argument = Argument::Number("MAXHOLD", "milliseconds");

/// `REQUEST id`.
const REQUEST: Argument = Argument::NamedText("REQUEST", "id");

//! The counters of `INFO dlock`.

/// Numbers that are shown under the names of their fields.
macro_rules! named {
    ($(#[$doc:meta])* pub struct $name:ident { $($(#[$what:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$what])* pub $field: $type,)*
        }

        impl $name {
            /// Returns the numbers with their names, in the order of `INFO dlock`.
            pub fn named(self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field as u64),)*].into_iter()
            }
        }
    };
}

named! {
    /// Counters since the server started.
    pub struct Stats {
        /// New holds.
        pub grants: u64,
        /// Entries into existing holds.
        pub reentries: u64,
        /// Requests that got nil at once.
        pub refusals: u64,
        /// Releases. The end of a session without a grace counts as one for each of its holds.
        pub releases: u64,
        /// Renewals by command.
        pub renewals: u64,
        /// Leases that ran out on this primary.
        pub lapses: u64,
        /// Lapses of holds that had reached their cap.
        pub caps: u64,
        /// Requests that queued.
        pub waits: u64,
        /// Waits that ended with nil.
        pub wait_timeouts: u64,
        /// Requests that got `DEADLOCK`.
        pub deadlocks: u64,
        /// Repeated requests that got the answer of the first.
        pub replays: u64,
        /// Holds whose session ended.
        pub session_ends: u64,
        /// How long all waits that ended with a grant took together, in µs.
        pub wait_usec_total: u64,
        /// The longest wait that ended with a grant, in µs.
        pub wait_usec_max: u64,
    }
}

named! {
    /// Current numbers of an engine.
    pub struct Gauges {
        /// Requests that wait.
        pub waiters: usize,
        /// Queues with a waiter.
        pub queues: usize,
        /// Holds that are bound to a session.
        pub sessions: usize,
        /// Named sessions that are open.
        pub named_sessions: usize,
        /// The highest token seen, 0 if none.
        pub last_token: u64,
    }
}

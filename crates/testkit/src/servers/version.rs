//! The features of the server under test.

use crate::client::Client;
use crate::replica::info_field;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    Redis(u32, u32),
    Valkey(u32, u32),
}

impl Version {
    #[track_caller]
    pub fn of(client: &mut Client) -> Self {
        let field = |client: &mut Client, name| info_field(client, "server", name);
        let (make, text): (fn(u32, u32) -> Self, _) = match field(client, "valkey_version") {
            Some(text) => (Self::Valkey, text),
            None => (Self::Redis, field(client, "redis_version").expect("a version")),
        };
        let mut numbers = text.split('.').map(|n| n.parse().expect("a version number"));
        make(numbers.next().expect("a major"), numbers.next().expect("a minor"))
    }

    /// Returns whether the server stores module data beside the keys only if there is any (`aux_save2`).
    pub fn keeps_the_token_clock(self) -> bool {
        match self {
            Self::Redis(major, minor) => (major, minor) >= (7, 2),
            Self::Valkey(..) => true,
        }
    }

    /// Modules may add a category to the ACL.
    pub fn has_module_categories(self) -> bool {
        match self {
            Self::Redis(major, minor) => (major, minor) >= (7, 4),
            Self::Valkey(major, _) => major >= 8,
        }
    }

    /// Commands of modules may be in the server's own categories.
    pub fn puts_module_commands_in_categories(self) -> bool {
        match self {
            Self::Redis(major, minor) => (major, minor) >= (7, 2),
            Self::Valkey(..) => true,
        }
    }

    /// Redis 8.6 and later ask the allocator for the size of a place inside of an allocation, for module values with a TTL.
    /// jemalloc answers; libc's answer is wrong, and may be a crash.
    pub fn measures_module_values(client: &mut Client) -> bool {
        let allocator = info_field(client, "memory", "mem_allocator").expect("an allocator");
        !matches!(Self::of(client), Self::Redis(8, 6..)) || allocator != "libc"
    }

    /// Returns whether it has the atomic slot migration of Redis: `CLUSTER MIGRATION IMPORT`.
    pub fn imports_slots(self) -> bool {
        matches!(self, Self::Redis(major, minor) if (major, minor) >= (8, 4))
    }

    /// Returns whether it has the atomic slot migration of Valkey: `CLUSTER MIGRATESLOTS`.
    pub fn migrates_slots(self) -> bool {
        self >= Self::Valkey(9, 0)
    }
}

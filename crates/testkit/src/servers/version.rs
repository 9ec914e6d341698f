//! The version and the features of the server under test.

use crate::client::Client;
use crate::replica::info_field;

/// A version: major, minor. In comparisons, every Redis is less than every Valkey.
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

    /// Returns whether the server has `aux_save2`, with which the module stores its token clock in RDB files.
    pub fn keeps_the_token_clock(self) -> bool {
        match self {
            Self::Redis(major, minor) => (major, minor) >= (7, 2),
            Self::Valkey(..) => true,
        }
    }

    /// Returns whether modules may add categories to the ACL.
    pub fn has_module_categories(self) -> bool {
        match self {
            Self::Redis(major, minor) => (major, minor) >= (7, 4),
            Self::Valkey(major, _) => major >= 8,
        }
    }

    /// Returns whether commands of modules may be in the server's own ACL categories.
    pub fn puts_module_commands_in_categories(self) -> bool {
        match self {
            Self::Redis(major, minor) => (major, minor) >= (7, 2),
            Self::Valkey(..) => true,
        }
    }

    /// Returns whether the server measures module values correctly.
    ///
    /// For module values with a TTL, Redis 8.6 and later pass the allocator a pointer into an allocation to get its
    /// size. jemalloc supports that. libc returns a wrong size, or crashes.
    pub fn measures_module_values(client: &mut Client) -> bool {
        let allocator = info_field(client, "memory", "mem_allocator").expect("an allocator");
        let is_exact = match Self::of(client) {
            Self::Redis(major, minor) => (major, minor) < (8, 6),
            Self::Valkey(..) => true,
        };
        is_exact || allocator != "libc"
    }

    /// Returns whether the server has the atomic slot migration of Redis: `CLUSTER MIGRATION IMPORT`.
    pub fn imports_slots(self) -> bool {
        matches!(self, Self::Redis(major, minor) if (major, minor) >= (8, 4))
    }

    /// Returns whether the server has the atomic slot migration of Valkey: `CLUSTER MIGRATESLOTS`.
    pub fn migrates_slots(self) -> bool {
        self >= Self::Valkey(9, 0)
    }
}

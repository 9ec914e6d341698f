//! The log as a client reads it.

use redis::Value;

use crate::support::lock::fields_of;
use crate::support::{Client, int_of, list_of, text_of};

/// An entry of the log: its fields in the order of the reply.
#[derive(Debug, PartialEq)]
pub struct Entry(Vec<(String, Value)>);

impl Entry {
    pub fn of(value: &Value) -> Self {
        Self(fields_of(value))
    }

    pub fn names(&self) -> Vec<&str> {
        self.0.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[track_caller]
    pub fn field(&self, name: &str) -> &Value {
        &self.0.iter().find(|(other, _)| other == name).unwrap_or_else(|| panic!("no {name}: {self:?}")).1
    }

    #[track_caller]
    pub fn int(&self, name: &str) -> i64 {
        int_of(self.field(name))
    }

    #[track_caller]
    pub fn text(&self, name: &str) -> String {
        text_of(self.field(name))
    }

    #[track_caller]
    pub fn texts<const N: usize>(&self, names: [&str; N]) -> [String; N] {
        names.map(|name| self.text(name))
    }
}

/// Returns all entries, newest first.
#[track_caller]
pub fn log(client: &mut Client) -> Vec<Entry> {
    list_of(&client.run("DLOCK.LOG GET -1")).iter().map(Entry::of).collect()
}

/// Returns the events of all entries, newest first.
#[track_caller]
pub fn events(client: &mut Client) -> Vec<String> {
    log(client).iter().map(|entry| entry.text("event")).collect()
}

/// Returns the newest entry, and asserts that it is about this event.
#[track_caller]
pub fn last(client: &mut Client, event: &str) -> Entry {
    let entry = log(client).into_iter().next().expect("an entry");
    assert_eq!(entry.text("event"), event, "{entry:?}");
    entry
}

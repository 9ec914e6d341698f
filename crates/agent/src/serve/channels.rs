//! The subscribers of events.

use std::collections::BTreeMap;
use std::rc::Rc;

use dlock_core::Name;
use dlock_core::reply::Writer;

use super::client::Client;
use super::glob;

/// The subscribers by channel and by pattern, and which events are sent.
#[derive(Debug)]
pub(super) struct Channels {
    channels: BTreeMap<Vec<u8>, BTreeMap<u64, Rc<Client>>>,
    patterns: BTreeMap<Vec<u8>, BTreeMap<u64, Rc<Client>>>,
    /// `notify-keyspace-events`.
    pub flags: String,
}

impl Default for Channels {
    fn default() -> Self {
        Self { channels: BTreeMap::new(), patterns: BTreeMap::new(), flags: "KEA".to_owned() }
    }
}

impl Channels {
    /// Returns whether there are subscribers.
    pub fn are_heard(&self) -> bool {
        !self.channels.is_empty() || !self.patterns.is_empty()
    }

    pub fn subscribe(&mut self, client: &Rc<Client>, name: &[u8], is_pattern: bool) {
        let (all, own) = self.side(client, is_pattern);
        all.entry(name.to_vec()).or_default().insert(client.id, client.clone());
        own.borrow_mut().insert(name.to_vec());
    }

    pub fn unsubscribe(&mut self, client: &Rc<Client>, name: &[u8], is_pattern: bool) {
        let (all, own) = self.side(client, is_pattern);
        own.borrow_mut().remove(name);
        if let Some(subscribers) = all.get_mut(name) {
            subscribers.remove(&client.id);
            if subscribers.is_empty() {
                all.remove(name);
            }
        }
    }

    /// Removes all subscriptions of a client.
    pub fn leave(&mut self, client: &Rc<Client>) {
        for is_pattern in [false, true] {
            let names: Vec<_> = self.side(client, is_pattern).1.borrow().iter().cloned().collect();
            names.iter().for_each(|name| self.unsubscribe(client, name, is_pattern));
        }
    }

    /// Tells the subscribers of an event on a key.
    pub fn publish(&self, name: Name<'_>, event: &str) {
        if !self.are_heard() || !self.has_class(event) {
            return;
        }
        if self.flags.contains('K') {
            let channel = [format!("__keyspace@{}__:", name.db).as_bytes(), name.key].concat();
            self.send(&channel, event.as_bytes());
        }
        if self.flags.contains('E') {
            self.send(format!("__keyevent@{}__:{event}", name.db).as_bytes(), name.key);
        }
    }

    fn has_class(&self, event: &str) -> bool {
        let class = match event {
            "del" => 'g',
            "expired" => 'x',
            _ => 'd',
        };
        self.flags.contains(['A', class])
    }

    fn send(&self, channel: &[u8], message: &[u8]) {
        for client in self.channels.get(channel).into_iter().flat_map(BTreeMap::values) {
            deliver(client, &[b"message", channel, message]);
        }
        for (pattern, clients) in self.patterns.iter().filter(|(pattern, _)| glob::matches(pattern, channel)) {
            clients.values().for_each(|client| deliver(client, &[b"pmessage", pattern, channel, message]));
        }
    }

    /// Returns the subscribers, and the client's own names, of channels or of patterns.
    #[allow(clippy::type_complexity, reason = "both sides at once")]
    fn side<'a>(
        &mut self,
        client: &'a Client,
        is_pattern: bool,
    ) -> (&mut BTreeMap<Vec<u8>, BTreeMap<u64, Rc<Client>>>, &'a std::cell::RefCell<std::collections::BTreeSet<Vec<u8>>>)
    {
        match is_pattern {
            false => (&mut self.channels, &client.channels),
            true => (&mut self.patterns, &client.patterns),
        }
    }
}

/// Sends a message. A client that does not read its messages is disconnected.
fn deliver(client: &Rc<Client>, parts: &[&[u8]]) {
    if client.is_killed.get() {
        return;
    }
    let mut out = client.out.borrow_mut();
    out.push(parts.len());
    parts.iter().for_each(|part| out.bytes(part));
    drop(out);
    client.bound();
    client.woken.notify_one();
}

//! Commands that clients send before and beside locks, answered as a server would.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::answer::{Answer, Greeted};
use crate::catalog;
use crate::connection::Connection;
use crate::hello::{Hello, client_name, shown};
use crate::resp::{Protocol, Reply, Request};
use crate::shared::Locks;
use crate::stats::Stats;

impl Connection {
    /// Answers a command, unless the servers have to be asked.
    pub fn greeted(&mut self, name: &str, request: &Request) -> Greeted {
        let is_passed = matches!(self.shared.locks, Locks::Passed(_));
        let words = request.words().get(1..).unwrap_or_default();
        let reply = match name {
            "HELLO" => return Greeted::Answer(self.hello(words)),
            "AUTH" => self.auth(words),
            "QUIT" => return Greeted::Answer(Answer::Last(Reply::OK)),
            "RESET" => self.reset(),
            "SELECT" if words.first().is_some_and(|word| word == b"0") => Reply::OK,
            "SELECT" => Reply::error("ERR DB index is out of range: the agent has database 0, that of its URL"),
            "ECHO" => words.first().map_or(Reply::Nil, Reply::bulk),
            "COMMAND" => catalog::answer(words),
            "CLIENT" => return self.client(words, is_passed),
            "INFO" if !is_passed || words.iter().any(|word| word.eq_ignore_ascii_case(b"agent")) => {
                Reply::bulk(self.shared.info())
            }
            "DLOCK.HELP" => catalog::help(),
            "TIME" if !is_passed => time(),
            "PING" | "INFO" | "EXISTS" => return Greeted::ForServers,
            name if name.starts_with("DLOCK.") && name != "DLOCK.APPLY" => return Greeted::ForServers,
            name if is_passed && catalog::PASSED.contains(&name) => return Greeted::ForServers,
            name => Reply::error(format!("ERR unknown command '{}': the agent offers locks only", shown(name))),
        };
        Greeted::Answer(Answer::Reply(reply))
    }

    pub fn pong(&self, request: &Request) -> Reply {
        request.word(1).map_or(Reply::Status("PONG".into()), Reply::bulk)
    }

    fn hello(&mut self, words: &[Vec<u8>]) -> Answer {
        let hello = match Hello::parse(words) {
            Ok(hello) => hello,
            Err(text) => return Answer::Reply(Reply::error(text)),
        };
        if let Some((user, password)) = hello.login {
            let reply = self.auth(&[user.to_vec(), password.to_vec()]);
            if reply != Reply::OK {
                return Answer::Reply(reply);
            }
        }
        if !self.is_logged_in {
            return Answer::Reply(Reply::error(Hello::NO_LOGIN));
        }
        if let Some(name) = hello.name
            && let Err(text) = self.set_name(name)
        {
            return Answer::Reply(Reply::error(text));
        }
        self.protocol = hello.protocol.unwrap_or(self.protocol);
        Answer::Reply(self.introduction())
    }

    fn introduction(&self) -> Reply {
        Reply::fields(vec![
            ("server", Reply::bulk("dlock-agent")),
            ("version", Reply::bulk(env!("CARGO_PKG_VERSION"))),
            ("proto", Reply::Integer(self.protocol.number())),
            ("id", Reply::number(self.number)),
            ("mode", Reply::bulk("standalone")),
            ("role", Reply::bulk("master")),
            ("modules", Reply::Array(Vec::new())),
        ])
    }

    fn auth(&mut self, words: &[Vec<u8>]) -> Reply {
        let Some(login) = &self.shared.options.login else {
            return Reply::error("ERR AUTH called, but the agent was started without a password");
        };
        let (user, password): (&[u8], &[u8]) = match words {
            [password] => (b"default", password),
            [user, password] => (user, password),
            _ => return Reply::error("ERR syntax error"),
        };
        if !login.is(user, password) {
            Stats::count(&self.shared.stats.wrong_passwords);
            return Reply::error("WRONGPASS invalid username-password pair or user is disabled.");
        }
        self.is_logged_in = true;
        Reply::OK
    }

    fn reset(&mut self) -> Reply {
        self.log_out();
        (self.protocol, self.name) = (Protocol::Resp2, None);
        Reply::Status("RESET".into())
    }

    fn client(&mut self, words: &[Vec<u8>], is_passed: bool) -> Greeted {
        let subcommand = words.first().map(|word| String::from_utf8_lossy(word).to_ascii_uppercase());
        let reply = match (subcommand.as_deref().unwrap_or_default(), words) {
            // The id is that of the connection to a server: `DLOCK.INFO` shows it and `CLIENT UNBLOCK` takes it.
            ("ID", [_]) | ("UNBLOCK", [_, _] | [_, _, _]) if is_passed => return Greeted::ForServers,
            ("ID", [_]) => Reply::number(self.number),
            ("GETNAME", [_]) => self.name.as_ref().map_or(Reply::Nil, Reply::bulk),
            ("SETNAME", [_, name]) => self.set_name(name).map_or_else(Reply::error, |()| Reply::OK),
            ("SETINFO", [_, _, _]) => Reply::OK,
            ("NO-EVICT" | "NO-TOUCH", [_, _]) => Reply::OK,
            ("INFO" | "LIST", [_, ..]) => Reply::bulk(self.line()),
            (other, _) => Reply::error(format!("ERR not offered by the agent: CLIENT {}", shown(other))),
        };
        Greeted::Answer(Answer::Reply(reply))
    }

    fn set_name(&mut self, name: &[u8]) -> Result<(), &'static str> {
        let name = client_name(name)?;
        self.name = Some(name).filter(|name| !name.is_empty());
        Ok(())
    }

    fn line(&self) -> String {
        let name = self.name.as_deref().unwrap_or_default();
        let protocol = self.protocol.number();
        format!("id={} addr={} name={name} db=0 resp={protocol}\n", self.number, self.address)
    }
}

fn time() -> Reply {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Reply::Array(vec![Reply::bulk(now.as_secs().to_string()), Reply::bulk(now.subsec_micros().to_string())])
}

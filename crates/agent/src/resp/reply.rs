//! Replies, in the two versions of the protocol.

use std::borrow::Cow;

use redis::{ServerError, Value};

/// The version that a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp2,
    Resp3,
}

impl Protocol {
    /// Returns the version, as in `HELLO`.
    pub fn number(self) -> i64 {
        match self {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        }
    }
}

/// A reply to a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Status(Cow<'static, str>),
    /// The code and the text.
    Error(Cow<'static, str>),
    Integer(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
    /// In RESP2, an array of keys and values in turn.
    Map(Vec<(Reply, Reply)>),
    Set(Vec<Reply>),
    Double(f64),
    Boolean(bool),
}

impl Reply {
    pub const OK: Self = Self::Status(Cow::Borrowed("OK"));

    pub fn error(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Error(text.into())
    }

    pub fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(bytes.as_ref().to_vec())
    }

    /// Returns an integer, or the largest of the protocol if the number is larger.
    pub fn number(number: impl TryInto<i64>) -> Self {
        Self::Integer(number.try_into().unwrap_or(i64::MAX))
    }

    /// Returns an integer, or nil.
    pub fn perhaps(number: Option<u64>) -> Self {
        number.map_or(Self::Nil, Self::number)
    }

    /// Returns a map of fields.
    pub fn fields(fields: Vec<(&str, Reply)>) -> Self {
        Self::Map(fields.into_iter().map(|(name, value)| (Self::bulk(name), value)).collect())
    }

    /// Appends the bytes.
    pub fn encode(&self, protocol: Protocol, to: &mut Vec<u8>) {
        let is_new = protocol == Protocol::Resp3;
        match self {
            Self::Status(text) => line(to, b'+', text),
            Self::Error(text) => line(to, b'-', text),
            Self::Integer(number) => line(to, b':', &number.to_string()),
            Self::Bulk(bytes) => {
                line(to, b'$', &bytes.len().to_string());
                to.extend_from_slice(bytes);
                to.extend_from_slice(b"\r\n");
            }
            Self::Nil if is_new => to.extend_from_slice(b"_\r\n"),
            Self::Nil => to.extend_from_slice(b"$-1\r\n"),
            Self::Array(items) => list(to, b'*', items, protocol),
            Self::Set(items) => list(to, if is_new { b'~' } else { b'*' }, items, protocol),
            Self::Map(fields) => {
                let (kind, count) = if is_new { (b'%', fields.len()) } else { (b'*', 2 * fields.len()) };
                line(to, kind, &count.to_string());
                for (name, value) in fields {
                    name.encode(protocol, to);
                    value.encode(protocol, to);
                }
            }
            Self::Double(number) if is_new => line(to, b',', &number.to_string()),
            Self::Double(number) => Self::bulk(number.to_string()).encode(protocol, to),
            Self::Boolean(is) if is_new => line(to, b'#', if *is { "t" } else { "f" }),
            Self::Boolean(is) => line(to, b':', if *is { "1" } else { "0" }),
        }
    }
}

impl From<Value> for Reply {
    /// Takes what a server replied.
    fn from(value: Value) -> Self {
        let all = |items: Vec<Value>| items.into_iter().map(Reply::from).collect();
        match value {
            Value::Nil => Self::Nil,
            Value::Int(number) => Self::Integer(number),
            Value::BulkString(bytes) => Self::Bulk(bytes),
            Value::SimpleString(text) => Self::Status(text.into()),
            Value::Okay => Self::OK,
            Value::Array(items) => Self::Array(all(items)),
            Value::Set(items) => Self::Set(all(items)),
            Value::Map(fields) => {
                Self::Map(fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
            }
            Value::Attribute { data, .. } => (*data).into(),
            Value::Double(number) => Self::Double(number),
            Value::Boolean(is) => Self::Boolean(is),
            Value::VerbatimString { text, .. } => Self::bulk(text),
            Value::ServerError(error) => Self::error(error_text(&error)),
            other => {
                Self::error(format!("ERR the server's reply is of a kind that the agent does not know: {other:?}"))
            }
        }
    }
}

fn error_text(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

fn list(to: &mut Vec<u8>, kind: u8, items: &[Reply], protocol: Protocol) {
    line(to, kind, &items.len().to_string());
    items.iter().for_each(|item| item.encode(protocol, to));
}

/// Writes a line. Line ends in the text become blanks, because they would end the reply.
fn line(to: &mut Vec<u8>, kind: u8, text: &str) {
    to.push(kind);
    to.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    to.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_encoded_in_both_versions_of_the_protocol() {
        let reply = Reply::fields(vec![("a", Reply::Nil), ("b", Reply::Array(vec![Reply::Integer(-1), Reply::OK]))]);
        for (protocol, expected) in [
            (Protocol::Resp2, "*4\r\n$1\r\na\r\n$-1\r\n$1\r\nb\r\n*2\r\n:-1\r\n+OK\r\n"),
            (Protocol::Resp3, "%2\r\n$1\r\na\r\n_\r\n$1\r\nb\r\n*2\r\n:-1\r\n+OK\r\n"),
        ] {
            let mut bytes = Vec::new();
            reply.encode(protocol, &mut bytes);
            assert_eq!(String::from_utf8_lossy(&bytes), expected);
        }
    }

    #[test]
    fn an_error_is_one_line() {
        let mut bytes = Vec::new();
        Reply::error("ERR a\r\n+OK").encode(Protocol::Resp2, &mut bytes);
        assert_eq!(bytes, b"-ERR a  +OK\r\n");
    }
}

//! `MULTI`, `EXEC` and `DISCARD`.

use super::call::{Call, Done};
use super::client::Transaction;
use super::server::Server;

pub(super) fn begin(_: &mut Server, call: &Call<'_>) -> Done {
    let mut transaction = call.client.transaction.borrow_mut();
    if transaction.is_some() {
        return Err("ERR MULTI calls can not be nested".to_owned());
    }
    *transaction = Some(Transaction::default());
    call.ok()
}

/// `EXEC` without a transaction.
pub(super) fn execute(_: &mut Server, _: &Call<'_>) -> Done {
    Err("ERR EXEC without MULTI".to_owned())
}

pub(super) fn discard(_: &mut Server, call: &Call<'_>) -> Done {
    match call.client.transaction.take() {
        Some(_) => call.ok(),
        None => Err("ERR DISCARD without MULTI".to_owned()),
    }
}

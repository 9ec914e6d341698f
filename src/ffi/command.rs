//! Registration of commands, and their entry.

use std::borrow::Cow;
use std::ffi::c_int;

use dlock_core::args::{AcquireAll, Malformed};
use redis_module::raw;
use smallvec::SmallVec;

use super::acl::has_categories;
use super::command_docs::{document, flags_of};
use super::context::Context;
use super::guard::{caught, guarded};
use super::strings::{Held, KeyName, bytes_of, c_string};
use dlock_core::spec::{KeyUse, Keys, Spec};

/// A command: how it is registered and what it does.
pub trait Command {
    /// The registration of the command.
    const SPEC: Spec;

    /// Why the command is not carried out.
    type Error: ErrorReply;

    /// Runs the command: replies, or blocks the client.
    ///
    /// # Errors
    /// The error to reply with. The command has sent no reply then.
    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), Self::Error>;
}

/// The error that a client gets for a command.
pub trait ErrorReply {
    /// Returns the text as the client gets it. `command` names the command.
    fn text(&self, command: &str) -> Cow<'static, str>;
}

/// The arguments of a call, the command's name first.
pub struct Arguments<'call>(&'call [*mut raw::RedisModuleString]);

impl<'call> Arguments<'call> {
    /// Returns the key, argument 1.
    ///
    /// # Errors
    /// The command has no argument.
    pub fn key(&self) -> Result<KeyName<'call>, Malformed> {
        self.name(1).ok_or(Malformed::Arity)
    }

    /// Returns the key, argument 1, of a command that may create it: a variable that is not set must not become a lock.
    ///
    /// # Errors
    /// The command has no argument, or the name is empty.
    pub fn key_to_acquire(&self) -> Result<KeyName<'call>, Malformed> {
        let key = self.key()?;
        if key.bytes().is_empty() { Err(Malformed::EmptyKey) } else { Ok(key) }
    }

    /// Returns the argument at `index` as the name of a key.
    pub fn name(&self, index: usize) -> Option<KeyName<'call>> {
        // SAFETY: the server's strings outlive the call, unchanged.
        self.0.get(index).map(|string| unsafe { KeyName::borrowed(*string) })
    }

    /// Returns the words on which the right to run a command depends, kept for longer than the call: as many as the
    /// command has at least, among them its name and its key, or all words if the number of its keys varies.
    pub(super) fn held(&self, spec: &Spec) -> SmallVec<[Held; 4]> {
        let count = match spec.keys {
            Keys::None | Keys::First(_) => usize::try_from(spec.arity.unsigned_abs()).unwrap_or(usize::MAX),
            Keys::Numbered(_) => usize::MAX,
        };
        // SAFETY: the server's strings are live during the call, and nobody changes them.
        self.0.iter().take(count).map(|word| unsafe { Held::new(*word) }).collect()
    }

    /// Returns the arguments after the key, from left to right.
    pub fn after_key(&self) -> impl Iterator<Item = &'call [u8]> + use<'call> {
        self.from(2)
    }

    /// Returns the arguments after the command's name, from left to right.
    pub fn all(&self) -> impl Iterator<Item = &'call [u8]> + use<'call> {
        self.from(1)
    }

    /// Runs the arguments after the command's name as a command, as a module's call without any check, and replies what
    /// that replies.
    #[cfg(debug_assertions)]
    pub fn call(&self, context: &mut Context<'_>) {
        let Some((name, rest)) = self.0.get(1..).and_then(<[_]>::split_first) else { return };
        // SAFETY: the format announces a vector of strings with its length; the server's strings outlive the call. The
        // reply is ours, and freed once; null is no reply.
        unsafe {
            let name = c_string(&String::from_utf8_lossy(bytes_of(*name)));
            let reply = api!(RedisModule_Call(context.raw, name.as_ptr(), c"v".as_ptr(), rest.as_ptr(), rest.len()));
            if reply.is_null() {
                return context.reply_error("ERR the server refuses this call");
            }
            context.owes_nothing();
            api!(RedisModule_ReplyWithCallReply(context.raw, reply));
            api!(RedisModule_FreeCallReply(reply));
        }
    }

    fn from(&self, index: usize) -> impl Iterator<Item = &'call [u8]> + use<'call> {
        let strings = self.0.get(index..).unwrap_or_default();
        // SAFETY: the server's strings outlive the call, unchanged.
        strings.iter().map(|string| unsafe { bytes_of(*string) })
    }
}

/// Registers a command with its docs, its key specs and its ACL categories.
pub fn register<C: Command>(context: &Context<'_>) -> Result<(), String> {
    let name = c_string(&C::SPEC.name.to_lowercase());
    let flags = c_string(C::SPEC.flags);
    let failed = |what: &str| format!("dlock: cannot {what} command {}", C::SPEC.name);
    let (first, last, step) = match C::SPEC.keys {
        Keys::First(_) => (1, 1, 1),
        Keys::None | Keys::Numbered(_) => (0, 0, 0),
    };
    // SAFETY: the server copies the strings; the entry is a function of this module, which is never unloaded.
    let (created, command) = unsafe {
        let (name, flags) = (name.as_ptr(), flags.as_ptr());
        let created = api!(RedisModule_CreateCommand(context.raw, name, Some(entry::<C>), flags, first, last, step));
        (created, api!(RedisModule_GetCommand(context.raw, name)))
    };
    if created != super::OK || command.is_null() {
        return Err(failed("register"));
    }
    // SAFETY: the command was created above, and this module is still being loaded.
    if unsafe { document(command, &C::SPEC) } != super::OK {
        return Err(failed("document"));
    }
    if has_categories() {
        let chosen = c_string(C::SPEC.categories);
        // SAFETY: the function is optional, and checked; the category `dlock` was added by `add_category`.
        let set = unsafe { raw::RedisModule_SetCommandACLCategories.map(|set| set(command, chosen.as_ptr())) };
        if set != Some(super::OK) {
            return Err(failed("set the ACL categories of"));
        }
    }
    Ok(())
}

/// Tells the server where the keys are. In a cluster, it does not look at the key specs of a module's command.
fn report_keys(context: &Context<'_>, arguments: &Arguments<'_>, key_use: KeyUse) {
    let count = AcquireAll::key_count(arguments.all()).unwrap_or(0);
    for position in (2..).take(count) {
        // SAFETY: the server asks for positions, and this is one of an argument.
        unsafe { api!(RedisModule_KeyAtPosWithFlags(context.raw, position, flags_of(key_use).cast_signed())) };
    }
}

unsafe extern "C" fn entry<C: Command>(
    context: *mut raw::RedisModuleCtx,
    arguments: *mut *mut raw::RedisModuleString,
    count: c_int,
) -> c_int {
    // SAFETY: the server passes the context of this call, and `count` live strings.
    let (mut context, arguments) = unsafe {
        let count = usize::try_from(count).unwrap_or(0);
        (Context::new(context), Arguments(std::slice::from_raw_parts(arguments, count)))
    };
    if let Keys::Numbered(key_use) = C::SPEC.keys
        // SAFETY: the context is that of this call.
        && unsafe { api!(RedisModule_IsKeysPositionRequest(context.raw)) } != 0
    {
        // A server may ask on a thread of its own.
        caught(C::SPEC.name, (), || report_keys(&context, &arguments, key_use));
        return super::OK;
    }
    let is_done = guarded(C::SPEC.name, false, || {
        if let Err(error) = C::run(&mut context, &arguments) {
            context.reply_error(&error.text(C::SPEC.name));
        }
        true
    });
    if !is_done {
        context.reply_rest("ERR internal error in dlock, see the server's log");
    }
    super::OK
}

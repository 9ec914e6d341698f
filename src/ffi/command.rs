//! Registration of commands, their docs and their entry.

use std::ffi::{CString, c_char, c_int};
use std::ptr::{null, null_mut};

use dlock_core::args::Malformed;
use redis_module::raw;

use super::context::{Context, bytes_of, c_string, log_notice};
use super::guard::guarded;
use super::key::Name;
use crate::error::Error;
use crate::reply::Reply;

/// One command: how it is registered and what it does.
pub trait Command {
    /// Its registration.
    const SPEC: Spec;

    /// Runs it. An error has changed nothing.
    fn run(context: &Context, arguments: &Arguments) -> Result<Reply, Error>;
}

/// How a command is registered and documented. Texts are ASCII.
pub struct Spec {
    /// In upper case, as in the docs.
    pub name: &'static str,
    /// The server's command flags.
    pub flags: &'static str,
    /// What it does to its key.
    pub key: KeyUse,
    /// As in `COMMAND INFO`: negative if there may be more.
    pub arity: c_int,
    /// One line.
    pub summary: &'static str,
    /// As in `COMMAND DOCS`.
    pub complexity: &'static str,
    /// The arguments after the key.
    pub arguments: &'static [Argument],
}

/// What a command does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// Reads it.
    Read,
    /// Makes it or changes it.
    Update,
    /// Changes it or removes it.
    Remove,
}

/// An argument in the docs of a command.
pub enum Argument {
    /// A string, with the name of the value.
    Text(&'static str),
    /// An optional word, without a value.
    Word(&'static str),
    /// An optional word and the integer that follows it, with the name of the value.
    Number(&'static str, &'static str),
    /// An integer without a word, with its name.
    BareNumber(&'static str),
    /// An optional word and the string that follows it, with the name of the value.
    NamedText(&'static str, &'static str),
    /// At most one of these, under one name.
    OneOf(&'static str, &'static [Argument]),
    /// These together, under one name; optional.
    Group(&'static str, &'static [Argument]),
}

/// The arguments of a call, the command's name first.
pub struct Arguments<'call>(&'call [*mut raw::RedisModuleString]);

impl<'call> Arguments<'call> {
    /// The key, argument 1.
    ///
    /// # Errors
    /// There is none.
    pub fn key(&self) -> Result<Name<'call>, Malformed> {
        // SAFETY: the server's strings outlive the call.
        self.0.get(1).map(|string| unsafe { Name::borrowed(*string) }).ok_or(Malformed::Arity)
    }

    /// The arguments after the key, from left to right.
    pub fn after_key(&self) -> impl Iterator<Item = &'call [u8]> + use<'call> {
        let strings = self.0.get(2..).unwrap_or_default();
        // SAFETY: the server's strings outlive the call, unchanged.
        strings.iter().map(|string| unsafe { bytes_of(*string) })
    }
}

/// Registers a command with its docs, its key spec and, where the server has them, the ACL category `dlock`.
pub fn register<C: Command>(context: &Context, categories: Categories) -> Result<(), String> {
    let name = c_string(&C::SPEC.name.to_lowercase());
    let flags = c_string(C::SPEC.flags);
    let failed = |what: &str| format!("dlock: command {} could not be {what}", C::SPEC.name);
    // SAFETY: the server copies the strings; the entry is a function of this module, which is never unloaded.
    let (created, command) = unsafe {
        let created =
            api!(RedisModule_CreateCommand(context.raw, name.as_ptr(), Some(entry::<C>), flags.as_ptr(), 1, 1, 1));
        (created, api!(RedisModule_GetCommand(context.raw, name.as_ptr())))
    };
    if created != super::OK || command.is_null() {
        return Err(failed("registered"));
    }
    // SAFETY: the command was made above, and not given out of this module load.
    if unsafe { document(command, &C::SPEC) } != super::OK {
        return Err(failed("documented"));
    }
    if categories == Categories::Own {
        // SAFETY: the function is optional, and checked; the category was added by `add_category`.
        let set = unsafe { raw::RedisModule_SetCommandACLCategories.map(|set| set(command, c"dlock".as_ptr())) };
        if set != Some(super::OK) {
            return Err(failed("put into the ACL category dlock"));
        }
    }
    Ok(())
}

/// Whether the server lets a module add an ACL category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Categories {
    /// It does, and it has `@dlock`.
    Own,
    /// It does not.
    ServerOnly,
}

/// Adds the ACL category `dlock`, where the server has such.
pub fn add_category(context: &Context) -> Categories {
    // SAFETY: both functions are optional, and checked; the context is that of the load.
    unsafe {
        let (Some(add), Some(_)) = (raw::RedisModule_AddACLCategory, raw::RedisModule_SetCommandACLCategories) else {
            log_notice("dlock: this server has no ACL categories of modules; grant the commands one by one");
            return Categories::ServerOnly;
        };
        if add(context.raw, c"dlock".as_ptr()) == super::OK { Categories::Own } else { Categories::ServerOnly }
    }
}

unsafe extern "C" fn entry<C: Command>(
    context: *mut raw::RedisModuleCtx,
    arguments: *mut *mut raw::RedisModuleString,
    count: c_int,
) -> c_int {
    // SAFETY: the server passes the context of this call and `count` live strings.
    let (context, arguments) = unsafe {
        let count = usize::try_from(count).unwrap_or(0);
        (Context::new(context), Arguments(std::slice::from_raw_parts(arguments, count)))
    };
    let run = || match C::run(&context, &arguments) {
        Ok(reply) => reply.send(&context),
        Err(error) => context.reply_error(&error.text(C::SPEC.name)),
    };
    guarded(C::SPEC.name, run, || context.reply_error("ERR internal error in dlock, see the server's log"));
    super::OK
}

/// # Safety
/// `command` must be a live command of this module.
unsafe fn document(command: *mut raw::RedisModuleCommand, spec: &Spec) -> c_int {
    let mut texts = Texts(Vec::new());
    let key_flags = match spec.key {
        KeyUse::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        KeyUse::Update => {
            raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE
        }
        KeyUse::Remove => {
            raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_DELETE
        }
    };
    // SAFETY: these are plain C structs, for which all zero means "not given".
    let (mut info, mut key_specs) = unsafe {
        let info: raw::RedisModuleCommandInfo = std::mem::zeroed();
        let key_specs: [raw::RedisModuleCommandKeySpec; 2] = std::mem::zeroed();
        (info, key_specs)
    };
    let [key_spec, _] = &mut key_specs;
    key_spec.flags = u64::from(key_flags);
    key_spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    key_spec.bs.index.pos = 1;
    key_spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    key_spec.fk.range = raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 { lastkey: 0, keystep: 1, limit: 0 };

    let mut arguments = vec![texts.argument("key", ArgumentKind::Key, None, raw::REDISMODULE_CMD_ARG_NONE)];
    arguments.extend(spec.arguments.iter().map(|argument| texts.document(argument)));
    arguments.push(end_of_arguments());

    info.version = &raw const INFO_VERSION;
    info.summary = texts.keep(spec.summary);
    info.complexity = texts.keep(spec.complexity);
    info.since = texts.keep(env!("CARGO_PKG_VERSION"));
    info.arity = spec.arity;
    info.key_specs = key_specs.as_mut_ptr();
    info.args = arguments.as_mut_ptr();
    // SAFETY: all pointers are live during the call, lists end with an empty element; the server copies everything.
    let result = unsafe { api!(RedisModule_SetCommandInfo(command, &raw const info)) };
    for argument in arguments {
        // SAFETY: lists of sub-arguments are made by `Texts::list`, and the server has copied them.
        unsafe { free_list(argument.subargs) };
    }
    result
}

static INFO_VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

#[derive(Clone, Copy)]
enum ArgumentKind {
    Key,
    Text,
    Number,
    Word,
    OneOf,
    Group,
}

/// Keeps the C strings of a command's docs alive while the server copies them.
struct Texts(Vec<CString>);

impl Texts {
    fn keep(&mut self, text: &str) -> *const c_char {
        let text = c_string(text);
        let start = text.as_ptr();
        self.0.push(text);
        start
    }

    fn document(&mut self, argument: &Argument) -> raw::RedisModuleCommandArg {
        let (none, optional) = (raw::REDISMODULE_CMD_ARG_NONE, raw::REDISMODULE_CMD_ARG_OPTIONAL);
        match argument {
            Argument::Text(name) => self.argument(name, ArgumentKind::Text, None, none),
            Argument::BareNumber(name) => self.argument(name, ArgumentKind::Number, None, none),
            Argument::Word(word) => self.argument(&word.to_lowercase(), ArgumentKind::Word, Some(word), optional),
            Argument::Number(word, name) => self.argument(name, ArgumentKind::Number, Some(word), optional),
            Argument::NamedText(word, name) => self.argument(name, ArgumentKind::Text, Some(word), optional),
            Argument::OneOf(name, choices) => self.list(name, ArgumentKind::OneOf, choices),
            Argument::Group(name, parts) => self.list(name, ArgumentKind::Group, parts),
        }
    }

    fn list(&mut self, name: &str, kind: ArgumentKind, parts: &[Argument]) -> raw::RedisModuleCommandArg {
        let mut parts: Vec<_> = parts.iter().map(|part| self.document(part)).collect();
        for part in &mut parts {
            // Inside a choice the choice is optional, not each part; in a group the words after the first are.
            if !matches!(kind, ArgumentKind::Group) {
                part.flags = raw::REDISMODULE_CMD_ARG_NONE.cast_signed();
            }
        }
        if let (ArgumentKind::Group, Some(first)) = (kind, parts.first_mut()) {
            first.flags = raw::REDISMODULE_CMD_ARG_NONE.cast_signed();
        }
        parts.push(end_of_arguments());
        let mut list = self.argument(name, kind, None, raw::REDISMODULE_CMD_ARG_OPTIONAL);
        list.subargs = Box::into_raw(parts.into_boxed_slice()).cast();
        list
    }

    fn argument(
        &mut self,
        name: &str,
        kind: ArgumentKind,
        word: Option<&str>,
        flags: u32,
    ) -> raw::RedisModuleCommandArg {
        let (kind, key_spec) = match kind {
            ArgumentKind::Key => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY, 0),
            ArgumentKind::Text => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING, -1),
            ArgumentKind::Number => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER, -1),
            ArgumentKind::Word => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN, -1),
            ArgumentKind::OneOf => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF, -1),
            ArgumentKind::Group => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK, -1),
        };
        raw::RedisModuleCommandArg {
            name: self.keep(name),
            type_: kind,
            key_spec_index: key_spec,
            token: word.map_or(null(), |word| self.keep(word)),
            flags: flags.cast_signed(),
            ..end_of_arguments()
        }
    }
}

fn end_of_arguments() -> raw::RedisModuleCommandArg {
    raw::RedisModuleCommandArg {
        name: null(),
        type_: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
        key_spec_index: -1,
        token: null(),
        summary: null(),
        since: null(),
        flags: 0,
        deprecated_since: null(),
        subargs: null_mut(),
        display_text: null(),
    }
}

/// # Safety
/// `list` must be null or made by `Texts::list`, and not used again.
unsafe fn free_list(list: *mut raw::RedisModuleCommandArg) {
    if list.is_null() {
        return;
    }
    // SAFETY: by the caller's promise the list is a boxed slice that ends with a nameless element.
    unsafe {
        let mut len = 1;
        while !(*list.add(len - 1)).name.is_null() {
            free_list((*list.add(len - 1)).subargs);
            len += 1;
        }
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, len)));
    }
}

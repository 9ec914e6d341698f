//! An instance as a Stateright model.
//!
//! Instances are not sent between threads, and are large. A state therefore is the list of actions that led to it and a
//! fingerprint of what they led to; whoever needs the instance plays the actions again. States with the same fingerprint
//! are the same.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Display};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use stateright::{Model, Property};

/// A small instance of something.
pub trait Instance: Clone + 'static {
    /// Who takes part, and what may happen.
    type Scope: Clone + Send + Sync + 'static;
    /// Something that happens.
    type Action: Clone + Debug + Display + PartialEq + Send + Sync + 'static;

    /// An instance in which nothing has happened.
    fn begin(scope: &Self::Scope) -> Self;
    /// What may happen next.
    fn actions(&self, scope: &Self::Scope) -> Vec<Self::Action>;
    /// Something happens, and nobody looks.
    fn play(&mut self, scope: &Self::Scope, action: &Self::Action);
    /// Something happens, and all properties are checked. `reached` counts what it came to.
    ///
    /// # Errors
    /// The property that is broken.
    fn check(
        &mut self,
        scope: &Self::Scope,
        action: &Self::Action,
        reached: &mut dyn FnMut(&'static str),
    ) -> Result<(), Broken>;
    /// The same for instances that behave the same.
    fn fingerprint(&self) -> u64;
    /// The properties, each with its condition in a state.
    fn properties() -> Vec<Property<Explorer<Self>>>;
}

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub property: &'static str,
    pub how: String,
}

/// The property of instances that panic.
pub const NO_PANIC: &str = "nothing panics";

/// States and what follows on them.
pub struct Explorer<I: Instance> {
    pub scope: I::Scope,
    /// How many actions there are in a story at most.
    pub depth: usize,
    reached: Mutex<BTreeMap<&'static str, u64>>,
}

/// A state.
#[derive(Clone)]
pub struct Visit<A> {
    last: Option<Arc<Step<A>>>,
    depth: usize,
    fingerprint: u64,
    broken: Option<Arc<Broken>>,
}

struct Step<A> {
    action: A,
    before: Option<Arc<Step<A>>>,
}

impl<A: Clone> Visit<A> {
    /// What led here.
    pub fn story(&self) -> Vec<A> {
        let steps = std::iter::successors(self.last.as_ref(), |step| step.before.as_ref());
        let mut story: Vec<A> = steps.map(|step| step.action.clone()).collect();
        story.reverse();
        story
    }

    /// What is wrong.
    pub fn broken(&self) -> Option<&Broken> {
        self.broken.as_deref()
    }

    /// Whether a property holds.
    pub fn keeps(&self, property: &str) -> bool {
        self.broken.as_ref().is_none_or(|broken| broken.property != property)
    }
}

impl<A> Debug for Visit<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x} after {} actions", self.fingerprint, self.depth)
    }
}

impl<A> PartialEq for Visit<A> {
    fn eq(&self, other: &Self) -> bool {
        (self.fingerprint, &self.broken) == (other.fingerprint, &other.broken)
    }
}

impl<A> Hash for Visit<A> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fingerprint.hash(state);
        self.broken.as_ref().map(|broken| broken.property).hash(state);
    }
}

/// An instance, and the fingerprint and the depth of its state.
type Played = (u64, usize, Box<dyn Any>);

thread_local! {
    /// The instance in the state that is being expanded.
    static CURRENT: RefCell<Option<Played>> = const { RefCell::new(None) };
}

impl<I: Instance> Explorer<I> {
    pub fn new(scope: I::Scope, depth: usize) -> Explorer<I> {
        Explorer { scope, depth, reached: Mutex::default() }
    }

    /// What was reached, and how often.
    pub fn reached(&self) -> BTreeMap<&'static str, u64> {
        self.reached.lock().unwrap().clone()
    }

    /// The instance in a state.
    fn instance(&self, state: &Visit<I::Action>) -> I {
        CURRENT.with_borrow_mut(|current| {
            let key = (state.fingerprint, state.depth);
            if let Some((fingerprint, depth, instance)) = current
                && (*fingerprint, *depth) == key
                && let Some(instance) = instance.downcast_ref::<I>()
            {
                return instance.clone();
            }
            let mut instance = I::begin(&self.scope);
            for action in state.story() {
                instance.play(&self.scope, &action);
            }
            *current = Some((key.0, key.1, Box::new(instance.clone())));
            instance
        })
    }
}

impl<I: Instance> Model for Explorer<I> {
    type State = Visit<I::Action>;
    type Action = I::Action;

    fn init_states(&self) -> Vec<Self::State> {
        // Another exploration may have left its own.
        CURRENT.with_borrow_mut(|current| *current = None);
        let fingerprint = I::begin(&self.scope).fingerprint();
        vec![Visit { last: None, depth: 0, fingerprint, broken: None }]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>) {
        if state.depth < self.depth && state.broken.is_none() {
            actions.extend(self.instance(state).actions(&self.scope));
        }
    }

    fn next_state(&self, state: &Self::State, action: Self::Action) -> Option<Self::State> {
        let mut instance = self.instance(state);
        let mut reached = |what| *self.reached.lock().unwrap().entry(what).or_default() += 1;
        let checked = catch_unwind(AssertUnwindSafe(|| instance.check(&self.scope, &action, &mut reached)));
        let checked = checked.unwrap_or_else(|panic| {
            let how = panic.downcast_ref::<String>().cloned();
            let how = how.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(Broken { property: NO_PANIC, how: how.unwrap_or_default() })
        });
        let fingerprint = if checked.is_ok() { instance.fingerprint() } else { state.fingerprint };
        let last = Some(Arc::new(Step { action, before: state.last.clone() }));
        Some(Visit { last, depth: state.depth + 1, fingerprint, broken: checked.err().map(Arc::new) })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        I::properties()
    }
}

/// Properties that hold in every state. Each is checked when a state is reached, and named here.
#[macro_export]
macro_rules! always {
    ($($name:expr),* $(,)?) => {
        vec![$(::stateright::Property::always($name, |_, state: &$crate::explorer::Visit<_>| state.keeps($name))),*]
    };
}

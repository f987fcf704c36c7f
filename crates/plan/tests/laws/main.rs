//! The laws of plans, checked on layouts, scopes, cuts and rules drawn at random.

mod layouts;
mod plans;
mod rules;
mod scopes;
mod strategies;

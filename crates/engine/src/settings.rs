//! Settings with their usual values.

/// A struct of settings that a file may give in part: each field stands beside its usual value.
#[macro_export]
macro_rules! settings {
    (
        $(#[$about:meta])*
        pub struct $name:ident $(<$base:ident>)? {
            $($(#[$doc:meta])* pub $field:ident: $kind:ty = $usual:expr,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name $(<$base>)? {
            $($(#[$doc])* pub $field: $kind,)+
        }

        impl $(<$base: Default>)? Default for $name $(<$base>)? {
            fn default() -> Self {
                Self { $($field: $usual,)+ }
            }
        }
    };
}

pub(crate) use settings;
